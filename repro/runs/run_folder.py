"""Writes and reads the run folder: config.yaml, provenance.json, metrics.jsonl and status.json.

metrics.jsonl is the truth: one JSON object per line, whose `kind` says which. status.json says `done` only after
the last line is on the disk. Only rank 0 writes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

from repro import metric
from repro.cluster.stalls import W_AND_B
from repro.config.compose import to_yaml
from repro.config.schema import Config
from repro.iteration_time import FIELDS, IterationTime, is_measured
from repro.json_text import json_text
from repro.runs import metrics, per_step, progress, provenance, recorded, same_code, status_file
from repro.runs.lock import Lock
from repro.runs.metrics import Metrics, Position
from repro.runs.wandb_mirror import Draw, Mirror, identity_of, redact
from repro.whole_files import write_whole

FILES = ("config.yaml", "provenance.json", metrics.NAME, "status.json")
SUMMED_UP = (*FIELDS, "source", "network")


class RunFolder:
    """A context in which rank 0 writes. Leaving it by an exception writes `failed` and the reason.

    `draw` makes the figures that W&B gets once the run is done.
    """

    def __init__(
        self,
        config: Config,
        description: str,
        device: Any,
        fingerprint: str = "",
        draw: Draw | None = None,
        waits: Callable[[str], AbstractContextManager[object]] = nullcontext,
        known: Mapping[str, Any] | None = None,
    ):
        """`waits(what)` is held while W&B or the terminal may stall, so that no other rank takes this one for hung.

        `known`: what else provenance.json is to hold.
        """
        self.config, self.folder, self.draw, self.waits = config, config.folder, draw, waits
        self.step, self.steps = 0, 0
        self.said = ""
        self.description, self.device, self.fingerprint = description, str(device), fingerprint
        self.known = known or {}

    def __enter__(self) -> RunFolder:
        self.lock = Lock(self.folder)
        try:
            self._open()
        except BaseException:
            self.lock.release()
            raise
        return self

    def _open(self) -> None:
        write_whole(self.folder / "config.yaml", to_yaml(self.config))
        earlier = status_file.read_object(self.folder / "provenance.json")
        before = earlier.get("earlier", [])
        sessions = [*(before if isinstance(before, list) else []), *([_session(earlier)] if earlier else [])]
        self.provenance = {
            **provenance.describe(self.device, self.description),
            **self.known,
            same_code.KEY: same_code.digests(self.config),
            "fingerprint": self.fingerprint,
            "start": status_file.now(),
            "end": None,
            "earlier": sessions,
        }
        if earlier:  # what the first session timed stays in metrics.jsonl, and this may be another machine
            self.provenance["timed_on"] = earlier.get("timed_on", provenance.of_machine(earlier))
        self.provenance["wandb_id"] = identity_of(self.config, earlier, self.provenance["start"])
        self._save_provenance()
        self.metrics = Metrics(self.folder)
        with ExitStack() as opened:  # what is to be closed if the rest fails
            opened.callback(self.metrics.close)
            self.progress = progress.show(self.config, self.waits)
            opened.callback(self.progress.close)
            self.progress.phase("starting W&B" if self.config.wandb.mode != "disabled" else "starting")
            with self.waits(W_AND_B):
                self.mirror = Mirror(self.config, self.provenance["wandb_id"], self.draw)
            opened.callback(self.mirror.finish, {}, ok=False)
            self.status("running", 0, 0)
            opened.pop_all()

    def resume(self, step: int, position: Position | None = None, passed_over: Sequence[str] = ()) -> None:
        """Goes on after `step`: removes what an earlier, longer session wrote beyond it, and a torn line.

        `position` is that of the checkpoint; `passed_over` says of later checkpoints why they are not used. Where none
        is left to go on from, all that they belong to is kept aside, as it may be worth a repair; and so are metrics
        of an epoch or more whose checkpoints were removed.
        """
        trained = not step and any(line["kind"] == "eval" for line in metrics.read(self.folder))
        aside = _kept_aside(self.folder) if not step and (passed_over or trained) else None
        self.metrics.cut(step, position)
        self.provenance["resumed_at"] = step
        if not step:
            self.provenance.pop("timed_on", None)  # this session times again
        self._save_provenance()
        why = f": {'; '.join(passed_over)}" if passed_over else ""
        if step:
            last = next(same_code.trained_with({"earlier": self.provenance["earlier"]}), self.provenance)
            other = provenance.rounds_unlike(last, self.provenance)
            self.progress.say(f"resuming {self.folder} after step {step}{other}{why}")
            if code := same_code.changed(self.provenance, self.config):
                self.progress.say(
                    f"warning: the steps before were trained with other code of {code}; "
                    f"remove {self.folder} to train all of them anew"
                )
        elif why or trained:
            why = why or ": no checkpoint of its steps is left"
            kept = f"; what was there is in {aside}" if aside else ""
            self.progress.say(f"starting {self.folder} again from its first step{why}{kept}")

    def log(self, line: dict[str, Any]) -> None:
        self.metrics.append(line)
        self.step = line["step"] if line["kind"] == "step" else self.step  # status is written less often
        with self.waits(W_AND_B):
            self.mirror.log(line)
        self.progress.log(line)

    def status(self, state: str, step: int, steps: int, error: str | None = None) -> None:
        """Writes `running`, `done`, `failed` or `preempted`. All else is on the disk before an end is."""
        self.metrics.check()
        if state != "running":
            self._save_end()
        reached = self.metrics.position() if state != "running" else None
        status_file.write(self.folder, state, step, steps, error, reached if state == "done" else None)
        self.step, self.steps, self.said = step, steps, state

    def _save_provenance(self) -> None:
        write_whole(self.folder / "provenance.json", redact(json_text(self.provenance, indent=1)) + "\n")

    def _save_end(self) -> None:
        self.provenance["end"] = status_file.now()
        self._save_provenance()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        try:
            if error is not None and self.said == "running":
                status_file.write(self.folder, "failed", self.step, self.steps, status_file.reason(error))
            if self.said == "running":
                self._save_end()
        except OSError:
            if error is None:  # a full disk, say; do not hide what went wrong first
                raise
        finally:
            with suppress(OSError):  # each line was flushed
                self.metrics.close()
            self.progress.phase("finishing")
            with self.waits(W_AND_B):
                self.mirror.finish(summary(self.folder), ok=error is None)
            self.progress.close()
            self.lock.release()


read_metrics = metrics.read


def summary(folder: Path) -> dict[str, Any]:
    """Returns what the table at the end shows; None = missing.

    Measured times take precedence over modelled ones, the chosen network's over those of `also_on`.
    """
    status, lines = status_file.read_object(folder / "status.json"), read_metrics(folder)
    last: dict[str, dict[str, Any]] = {}
    for line in lines:
        if line["kind"] != "iteration_time" or is_measured(str(line.get("source"))) or "iteration_time" not in last:
            last[line["kind"]] = line
    step, evaluation, times = last.get("step", {}), last.get("eval", {}), last.get("iteration_time", {})
    return {
        **{measure.key: evaluation.get(measure.key) for measure in metric.ALL},
        "loss": evaluation.get("train_loss", step.get("loss")),
        "samples_per_s": evaluation.get("samples_per_s"),
        "epochs": evaluation.get("epoch"),
        "bytes_sent_per_step": per_step.usual(lines, "bytes_sent"),
        "bytes_sent_between": per_step.between(lines, "bytes_sent"),
        "bytes_sent_worst_rank": per_step.over_ranks(lines).get("bytes_sent_worst_rank"),
        "messages_per_step": per_step.usual(lines, "messages"),
        "density": step.get("density"),
        "k": step.get("k"),
        **{name: times.get(name) for name in SUMMED_UP},
        "folder": str(folder),
        "state": status.get("state"),
        "error": status.get("error"),
        "step": status.get("step"),
        "steps": status.get("steps"),
    }


def time_line(config: Config, source: str, time: IterationTime, dilation: float = 1.0) -> dict[str, Any]:
    """Returns the line of metrics.jsonl on an iteration; `source` is modelled, or what `measured_source` says."""
    where = {"network": config.network.name, "nodes": config.nodes}
    slowed = {} if dilation == 1 else {"dilation": dilation}
    return {"kind": "iteration_time", "source": source, **where, **time.row(), **slowed}


def _kept_aside(folder: Path) -> Path:
    """Copies metrics.jsonl and moves what else is of its steps into the first damaged-N that is free; returns it."""
    place = next(path for number in count(1) if not (path := folder / f"damaged-{number}").exists())
    place.mkdir()
    shutil.copyfile(folder / metrics.NAME, place / metrics.NAME)
    for name in ("checkpoints", recorded.NAME):  # a damaged record that stayed would damage the next session, too
        if (folder / name).exists():
            (folder / name).rename(place / name)
    return place


def _session(record: dict[str, Any]) -> dict[str, Any]:
    said = {name: record.get(name) for name in ("argv", "git", "versions", "threads", "start", "end", "resumed_at")}
    kept = (same_code.KEY, provenance.BFLOAT16, "ranks", "job")  # where it says them
    said |= {name: record[name] for name in kept if name in record}
    return said | provenance.of_machine(record)


def hidden(results: Path) -> list[Path]:
    """Returns the folders under `results` that this user may not look into, where others' runs may be."""
    folders = (path for pattern in ("*", "*/*") for path in results.glob(pattern) if path.is_dir())
    return sorted(path for path in folders if not os.access(path, os.R_OK | os.X_OK))


def run_folders(results: Path) -> list[Path]:
    """Returns the folders under `results` that hold a file of a run."""
    return sorted({path.parent for name in FILES for path in results.glob(f"*/*/{name}")})
