"""What can happen to the files of a run folder, for tests alone."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from tiny_runs import QUICK

RUN = [*QUICK, "algo=gtopk", "nodes=2", "steps=2", "checkpoint_every=1", "probe_steps=[2]"]
ALL = ("config.yaml", "provenance.json", "metrics.jsonl", "status.json", "recorded.json")
WRONG = ('"text"', "[1]", '{"a": 1}', "true", "-1", "1e999", "null", "0.5")  # for a key of JSON
NUMBERS, COUNTS, TEXTS, OBJECTS = ({"-1", "0.5"}, set(), {'"text"'}, {'{"a": 1}'})
NULL = {"null"}
KEYS: dict[tuple[str, str], dict[str, set[str]]] = {  # file, kind of line -> key -> what of WRONG is right for it
    ("status.json", ""): {"state": set(), "step": COUNTS, "steps": COUNTS},
    ("provenance.json", ""): {
        "data": TEXTS, "fingerprint": TEXTS, "versions": set(), "cpu": TEXTS, "cpus": NULL, "processor": OBJECTS,
        "rates": OBJECTS, "allocator": TEXTS | NULL, "gpus": set(), "device": TEXTS, "platform": TEXTS,
        "git": OBJECTS | NULL,
    },
    ("metrics.jsonl", "step"): {
        "step": COUNTS, "k": NUMBERS | NULL, "bytes_sent": NUMBERS | NULL, "messages": NUMBERS | NULL,
        "rounds": NUMBERS | NULL,
    },
    ("metrics.jsonl", "eval"): {
        "step": COUNTS, "epoch": NUMBERS, "test_accuracy": NUMBERS, "train_loss": NUMBERS | NULL,
        "test_loss": NUMBERS | NULL,
    },
    ("metrics.jsonl", "iteration_time"): {
        "source": TEXTS, "network": TEXTS, "nodes": COUNTS, "compute_s": NUMBERS, "compress_s": NUMBERS,
        "communicate_s": NUMBERS, "hidden_s": NUMBERS | NULL,
    },
    ("recorded.json", ""): {
        "step": COUNTS, "nodes": COUNTS, "parameters": COUNTS, "k": COUNTS, "kept": COUNTS, "held_mass": NUMBERS,
        "selected_mass": NUMBERS, "lost_mass": NUMBERS, "schedule": set(),
    },
}  # fmt: skip
OPTIONAL = {
    *KEYS["provenance.json", ""], "k", "bytes_sent", "messages", "rounds", "train_loss", "test_loss", "hidden_s",
}  # fmt: skip
CONFIG: dict[str, Any] = {  # a value that cannot be, by key of config.yaml
    "model": "resnet20", "data": None, "algo": [], "network": {"name": "a"}, "nodes": "two", "seed": -1, "epochs": 0.5,
    "batch_per_node": [], "lr": float("nan"), "lr_drops": "81", "momentum": float("inf"), "density": 5,
    "wandb": {"a": 1}, "precision": "float8", "steps": "all", "a_key_of_another_version": 1,
}  # fmt: skip

Damage = Callable[[Path], object]


def put(name: str, content: bytes) -> Damage:
    return lambda place: (place / name).write_bytes(content)


def halve(name: str) -> Damage:
    def cut(place: Path) -> None:
        content = (place / name).read_bytes()
        (place / name).write_bytes(content[: len(content) // 2])

    return cut


def in_place(name: str, make: Callable[[Path], object]) -> Damage:
    return lambda place: ((place / name).unlink(), make(place / name))


def in_json(name: str, kind: str, key: str, value: str | None) -> Damage:
    """Puts a value, as JSON, to the key of the first object of its kind; None removes the key."""

    def change(place: Path) -> None:
        text = (place / name).read_text()
        objects = [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)
        each = objects if isinstance(objects, list) else [objects]
        chosen = next(one for one in each if not kind or one["kind"] == kind)
        chosen.pop(key)
        if value is not None:
            chosen[key] = "VALUE"
        text = "".join(json.dumps(one) + "\n" for one in each) if name.endswith("l") else json.dumps(objects)
        (place / name).write_text(text.replace('"VALUE"', value or ""))
        if name == "metrics.jsonl":  # as written by a version that did not keep its digest
            _forget_digest(place)

    return change


def in_config(change: Callable[[dict[str, Any]], object]) -> Damage:
    def rewrite(place: Path) -> None:
        said = yaml.safe_load((place / "config.yaml").read_text())
        change(said)
        (place / "config.yaml").write_text(yaml.safe_dump(said))

    return rewrite


def _forget_digest(place: Path) -> None:
    said = json.loads((place / "status.json").read_text())
    said.pop("metrics", None)
    (place / "status.json").write_text(json.dumps(said))


def metrics_line(edit: Callable[[list[bytes]], list[bytes]]) -> Damage:
    def change(place: Path) -> None:
        file = place / "metrics.jsonl"
        file.write_bytes(b"".join(edit(file.read_bytes().splitlines(keepends=True))))
        _forget_digest(place)

    return change


def damages() -> Iterator[tuple[str, Damage]]:
    for name in ALL:
        for what, content in (
            ("empty", b""), ("{", b"{"), ("a list", b"[1]"), ("null", b"null"), ("a number", b"3"), ("a text", b'"a"'),
            ("binary", b"\xff\xfe\x00\x01" * 9), ("nested without end", b"[" * 100_000),
        ):  # fmt: skip
            yield f"{name} {what}", put(name, content)
        yield f"{name} truncated", halve(name)
        yield f"{name} a folder", in_place(name, Path.mkdir)
        yield f"{name} a pipe", in_place(name, os.mkfifo)
        yield f"{name} a link to nothing", in_place(name, lambda path: path.symlink_to("nothing"))
        if name != "recorded.json":  # which most runs have not
            yield f"{name} missing", lambda place, name=name: (place / name).unlink()
        if os.geteuid():
            yield f"{name} unreadable", lambda place, name=name: (place / name).chmod(0)
    for (name, kind), keys in KEYS.items():
        for key, right in keys.items():
            for value in WRONG:
                if value not in right:
                    yield f"{name} {kind} {key}={value}", in_json(name, kind, key, value)
            if key not in OPTIONAL:
                yield f"{name} {kind} without {key}", in_json(name, kind, key, None)
    for key, value in CONFIG.items():
        yield f"config.yaml {key}={value}", in_config(lambda said, key=key, value=value: said.update({key: value}))
    for key in ("model", "data", "algo", "nodes", "seed", "lr", "epochs"):
        yield f"config.yaml without {key}", in_config(lambda said, key=key: said.pop(key))
    yield "config.yaml of another run", in_config(lambda said: said.update(seed=9))
    yield "config.yaml algo of another version", in_config(lambda said: said["algo"].update(new=1))
    yield "config.yaml with a tag", put("config.yaml", b"!!python/object/apply:os.system [exit]")
    yield "status.json done at another step", in_json("status.json", "", "steps", "3")
    yield "status.json of an unknown state", in_json("status.json", "", "state", '"finished"')
    yield "provenance.json of odd versions", in_json("provenance.json", "", "versions", '{"torch": 2}')
    yield "provenance.json of odd gpus", in_json("provenance.json", "", "gpus", "[3]")
    yield "metrics.jsonl without a step", metrics_line(lambda lines: [*lines[:1], *lines[2:]])
    yield "metrics.jsonl with a step twice", metrics_line(lambda lines: [*lines, lines[1]])
    yield "metrics.jsonl with no kind", metrics_line(lambda lines: [*lines, b'{"step": 3}\n'])
    yield (
        "metrics.jsonl changed by a digit",
        lambda place: put("metrics.jsonl", (place / "metrics.jsonl").read_bytes().replace(b'"loss": ', b'"loss": 1'))(
            place
        ),
    )
    yield "recorded.json of odd rounds", in_json("recorded.json", "", "schedule", "[[[1, 2]]]")
    yield "recorded.json of odd selections", in_json("recorded.json", "", "k", '1, "selections": [{"index": [1]}]')


DAMAGES = dict(damages())
