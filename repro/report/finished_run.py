"""Reads a run folder as it was left, for the summaries. A folder that no run can have left so is damaged."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from repro.config.compose import from_yaml
from repro.config.schema import Config, ConfigError
from repro.data import Content
from repro.iteration_time import PARTS
from repro.json_text import json_text
from repro.runs import lock, metrics, missing
from repro.runs.status import STATES

TEXT, WHOLE, NUMBER, LIST, OBJECT, NULL = str, int, float, list, dict, type(None)  # a whole number is a NUMBER too
Fields = dict[str, tuple[type, ...]]

# What is read of each file. A field that ends with "?" may be missing; those not named here may be anything.
STATUS: Fields = {"step": (WHOLE,), "steps": (WHOLE,)}
PROVENANCE: Fields = {
    "data?": (TEXT,), "fingerprint?": (TEXT,), "versions?": (OBJECT,), "cpu?": (TEXT,), "cpus?": (WHOLE, NULL),
    "processor?": (OBJECT,), "rates?": (OBJECT,), "allocator?": (TEXT, NULL), "gpus?": (LIST,), "device?": (TEXT,),
    "platform?": (TEXT,), "git?": (OBJECT, NULL), "timed_on?": (OBJECT,), "earlier?": (LIST,),
}  # fmt: skip
COUNTED = (NUMBER, NULL)
LINES: dict[str, Fields] = {  # by kind
    "step": {
        "step": (WHOLE,), "k?": COUNTED, "bytes_sent?": COUNTED, "messages?": COUNTED, "rounds?": COUNTED,
        "period?": (WHOLE,),
    },
    "eval": {
        "step": (WHOLE,), "epoch": (NUMBER,), "train_loss?": COUNTED, "test_loss?": COUNTED,
    },
    "iteration_time": {
        "source": (TEXT,), "network": (TEXT,), "nodes": (WHOLE,), "hidden_s?": COUNTED,
        **dict.fromkeys(PARTS, (NUMBER,)),
    },
}  # fmt: skip
RECORD: Fields = {
    **dict.fromkeys(("step", "nodes", "parameters", "k", "kept"), (WHOLE,)),
    **dict.fromkeys(("held_mass", "selected_mass", "lost_mass"), (NUMBER,)),
    "schedule": (LIST,), "selections?": (LIST,), "result?": (OBJECT,),
}  # fmt: skip
SELECTION: Fields = {"index": (LIST,), "value": (LIST,)}
MOST = 1e300  # no count and no measurement; NaN is not below it either
NAMES = {TEXT: "a text", WHOLE: "a whole number", NUMBER: "a number", LIST: "a list", OBJECT: "an object", NULL: "null"}


class Damaged(Exception):
    """Says in one line why a run folder is left out."""


@dataclass(frozen=True)
class Run:
    config: Config
    provenance: dict[str, Any]
    metrics: list[dict[str, Any]]
    recorded: list[dict[str, Any]]

    @property
    def content(self) -> Content:
        return Content(self.provenance.get("data", self.config.data.name), self.provenance.get("fingerprint", ""))

    @property
    def timed_on(self) -> dict[str, Any]:
        """Returns the provenance with the machine that timed the run, where another one went on with it."""
        machine = self.provenance.get("timed_on", {})
        for session in self.provenance.get("earlier", []) if machine else []:
            if isinstance(session, dict) and session | machine == session:
                kept = {"versions": session.get("versions", {}), "git": session.get("git")}
                return self.provenance | machine | kept
        return self.provenance | machine

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.metrics if line["kind"] == kind]


def read_run(place: Path, stopped: bool = False) -> Run:
    """Returns a run that is done. Raises Damaged where it is not, or where a file of it is not as a run leaves it.

    `stopped`: also one that stopped on its way, or was killed, as the run of the epochs up to its last evaluation,
    which it equals.
    """
    status = _object(place / "status.json", {"state": (TEXT,)})
    done = status["state"] == "done"
    killed = status["state"] == "running" and lock.holder(place) is None
    if not done and not (stopped and (killed or status["state"] in ("preempted", "failed"))):
        raise Damaged(status["state"] if status["state"] in STATES else f"status.json: no state is {status['state']!r}")
    _check(status, STATUS, "status.json")
    config = _config(place)
    lines = _metrics(place, status, config)
    if not done:
        config, lines = _up_to_last_evaluation(config, lines)
    elif status["step"] != status["steps"]:
        raise Damaged(f"status.json: done at step {status['step']} of {status['steps']}")
    recorded = _recorded(place / "recorded.json") if os.path.lexists(place / "recorded.json") else []
    return Run(config, _provenance(place / "provenance.json"), lines, recorded)


def _up_to_last_evaluation(config: Config, lines: list[dict[str, Any]]) -> tuple[Config, list[dict[str, Any]]]:
    if config.steps is not None or (config.scale_schedule and config.epochs != config.schedule_epochs):
        raise Damaged("it stopped, and a shorter run would have had another schedule")
    evaluated = ((at, line["epoch"]) for at, line in enumerate(lines) if line["kind"] == "eval")
    ends = [at for at, epoch in evaluated if epoch % 1 == 0 and 1 <= epoch <= config.epochs]
    if not ends:
        raise Damaged("it stopped before its first evaluation")
    # a whole schedule is the same scaled or not, and what it began is a prefix of it
    config = dataclasses.replace(config, epochs=int(lines[ends[-1]]["epoch"]), scale_schedule=False)
    return config, lines[: ends[-1] + 1]


def _config(place: Path) -> Config:
    file = place / "config.yaml"
    _text(file)
    try:
        config = from_yaml(file)
    except ConfigError as error:
        reason = str(error).removeprefix(f"{file}: ").removeprefix(f"{file} is ")
        raise Damaged(f"config.yaml: {reason[:300]}") from None
    if not config.is_named(place.name):
        raise Damaged(f"config.yaml: its settings are those of the run {config.run_id}")
    return config


def _provenance(file: Path) -> dict[str, Any]:
    said = _object(file, PROVENANCE)
    _machine(said, file.name)
    _check(said.get("git") or {}, {"commit?": (TEXT,)}, f"{file.name}: git")
    if "timed_on" in said:
        _check(said["timed_on"], PROVENANCE, f"{file.name}: timed_on")
        _machine(said["timed_on"], f"{file.name}: timed_on")
    return said


def _machine(said: dict[str, Any], at: str) -> None:
    for name, kinds in (("versions", (TEXT,)), ("rates", (NUMBER,))):
        _check(said.get(name, {}), dict.fromkeys(said.get(name, {}), kinds), f"{at}: {name}")
    if not all(isinstance(gpu, str) for gpu in said.get("gpus", [])):
        raise Damaged(f"{at}: gpus has an entry that is no text")


def _metrics(place: Path, status: dict[str, Any], config: Config) -> list[dict[str, Any]]:
    measure = config.data.metric
    judged: Fields = {measure.key: COUNTED if measure.falls else (NUMBER,)}  # exp of a large loss is infinite: null
    text = _text(place / metrics.NAME)
    reached = metrics.from_json(status.get("metrics"))
    if reached is not None and metrics.changed(place, reached):
        raise Damaged(f"{metrics.NAME} is not what it was when the run ended")
    lines, texts = [], text.splitlines()
    if status["state"] != "done" and text and not text.endswith("\n"):
        texts.pop()  # a kill or a full disk cut it short, and going on cuts it off
    for number, line in enumerate(texts, 1):
        read = _json(line, f"{metrics.NAME}, line {number}")
        at = f"{metrics.NAME}, line {number}"
        _check(read, {"kind": (TEXT,)}, at)
        _check(read, LINES.get(read["kind"], {}) | (judged if read["kind"] == "eval" else {}), at)
        lines.append(read)
    steps = [line["step"] for line in lines if line["kind"] == "step"]
    if config.node is not None and not steps:  # its compute is stated
        if not any(line["kind"] == "iteration_time" for line in lines):
            raise Damaged(f"{metrics.NAME} has no iteration_time")
    else:
        made = status["step"] if status["state"] == "done" else max(status["step"], *steps, 0)  # the status may lag
        if steps != list(range(1, made + 1)) or not steps:
            raise Damaged(f"{metrics.NAME} does not have each of the {made} steps once")
    return lines


def _recorded(file: Path) -> list[dict[str, Any]]:
    records = _json(_text(file), file.name)
    if not isinstance(records, list):
        raise Damaged(f"{file.name}: it is no list")
    for number, record in enumerate(records, 1):
        at = f"{file.name}, record {number}"
        _check(record, RECORD, at)
        if not all(_is_round(done) for own in record["schedule"] for done in (own if own.__class__ is list else [0])):
            raise Damaged(f"{at}: schedule has a round that is none")
        for selection in chain(record.get("selections", []), [record["result"]] if "result" in record else []):
            _check(selection, SELECTION, f"{at}, selection")
            each = [*selection["index"], *selection["value"]]
            if not all(_is(value, NUMBER) for value in each) or len(selection["index"]) != len(selection["value"]):
                raise Damaged(f"{at}: a selection is not of indices and as many values")
    return records


def _is_round(done: Any) -> bool:
    """Returns whether this is (to, bytes sent, source, bytes received, how often); to and source may be null."""
    whole = isinstance(done, list) and len(done) == 5
    return whole and all(_is(value, WHOLE) or (value is None and at in (0, 2)) for at, value in enumerate(done))


def _object(file: Path, fields: Fields) -> dict[str, Any]:
    read = _json(_text(file), file.name)
    _check(read, fields, file.name)
    return dict(read)


def _text(file: Path) -> str:
    if not file.is_file():  # a pipe, say, would not end
        raise Damaged(f"{file.name} is {'no file' if os.path.lexists(file) else f'missing{missing.remedy(file)}'}")
    try:
        return file.read_text()
    except OSError as error:
        raise Damaged(f"{file.name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Damaged(f"{file.name} is no text") from None


def _json(text: str, at: str) -> Any:
    """Reads JSON. NaN and Infinity, which earlier versions wrote, are null as they are written now."""
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{at} is no JSON: {error}") from None


def _check(read: Any, fields: Fields, at: str) -> None:
    if not isinstance(read, dict):
        raise Damaged(f"{at} is no object")
    for field, kinds in fields.items():
        name = field.removesuffix("?")
        if name not in read:
            if field == name:
                raise Damaged(f"{at} has no {name}")
        elif not any(_is(read[name], kind) for kind in kinds):
            wanted = " or ".join(NAMES[kind] for kind in kinds)
            raise Damaged(f"{at}: {name}={json_text(read[name])[:40]} is not {wanted}")


def _is(value: Any, kind: type) -> bool:
    """Returns whether it is of this kind; whole numbers count something here, so that none is negative."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int | float) and kind in (NUMBER, WHOLE):
        return abs(value) < MOST if kind is NUMBER else isinstance(value, int) and 0 <= value < MOST
    return isinstance(value, kind)
