"""How the runs of a results folder stand: from their files, their locks, and SLURM's queue."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from repro import lock
from repro.config import Config

LAUNCHES = "launches"  # the folder in RESULTS that `repro launch` keeps manifests and logs in
JOB_PREFIX = "repro-"
STATES = ("done", "running", "pending", "failed", "preempted", "new")
OPEN = ("failed", "preempted", "new")  # to be submitted


@dataclass(frozen=True)
class Run:
    """One run. `state` is one of STATES; new = submitted or started never."""

    name: str  # EXPERIMENT/RUN_ID
    state: str
    step: int = 0
    steps: int = 0
    accuracy: float | None = None
    eta_s: float | None = None
    error: str | None = None


def survey(results: Path, experiment: str | None = None) -> list[Run]:
    """Every run under `results`, begun or waiting in the queue, of one experiment or of all."""
    waiting = queued(results)
    begun = {path.parent for path in results.glob("*/*/config.yaml")}
    folders = sorted(folder for folder in begun | waiting.keys() if experiment in (None, folder.parent.name))
    return [run(folder, waiting.get(folder)) for folder in folders]


def states(configs: Iterable[Config], results: Path) -> dict[Path, str]:
    """The state of each run's folder."""
    waiting = queued(results)
    return {config.folder: run(config.folder, waiting.get(config.folder)).state for config in configs}


class Job(NamedTuple):
    """A run's task in SLURM's queue: pending or running, and why it does not run yet."""

    state: str
    reason: str = ""


def run(folder: Path, job: Job | None) -> Run:
    """The run in `folder`, whose task in the queue is `job`, if it has one."""
    name, said = f"{folder.parent.name}/{folder.name}", _json(folder / "status.json")
    state, error = said.get("state") or "new", said.get("error")
    alive = lock.holder(folder) is not None
    if state != "done" and alive:
        state, error = "running", None
    elif state != "done" and job is not None:
        state, error = job
    elif state == "running":
        state, error = "failed", "ended without a word: killed, or its machine went down"
    step, steps = said.get("step", 0), said.get("steps", 0)
    eta = _eta(folder, said) if state == "running" and alive else None
    return Run(name, state, step, steps, _accuracy(folder), eta, error)


def queued(results: Path) -> dict[Path, Job]:
    """Run folder -> its job, for this user's jobs that `repro launch` submitted into `results`."""
    if shutil.which("squeue") is None:
        return {}
    command = ["squeue", "--me", "--noheader", "--array", "--format=%j|%K|%T|%r"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[Path, Job] = {}
    for words in (line.split("|") for line in done.stdout.splitlines()):
        name, task, state, reason = words if len(words) == 4 else ("", "", "", "")
        launch, _, shape = name.removeprefix(JOB_PREFIX).rpartition("-")
        manifest = results / LAUNCHES / launch / f"{shape}.jsonl"
        if name.startswith(JOB_PREFIX) and task.isdigit() and manifest.is_file():
            folder = results / json.loads(manifest.read_text().split("\n")[int(task) - 1])["run"]
            active = state in ("RUNNING", "COMPLETING", "SUSPENDED")
            if active or folder not in found:
                found[folder] = Job("running") if active else Job("pending", f"waits: {reason}")
    return found


def table(runs: list[Run]) -> str:
    """One line a run, and how many are in which state."""
    rows = [("run", "state", "step", "accuracy", "left", "")]
    rows += [
        (
            one.name, one.state, f"{one.step}/{one.steps}" if one.steps else "",
            "" if one.accuracy is None else f"{100 * one.accuracy:.2f} %",
            "" if one.eta_s is None else duration(one.eta_s), one.error or "",
        )
        for one in runs
    ]  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    counts = [f"{sum(one.state == state for one in runs)} {state}" for state in STATES]
    return "\n".join([*lines, ", ".join(count for count in counts if not count.startswith("0 "))])


def duration(seconds: float) -> str:
    """59 s, 12 min, 3 h 05 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _eta(folder: Path, said: dict[str, Any]) -> float | None:
    """Seconds to the last step, at the pace since this start (its set-up included)."""
    provenance = _json(folder / "provenance.json")
    try:
        spent = datetime.fromisoformat(said["updated"]) - datetime.fromisoformat(provenance["start"])
        made = said["step"] - provenance.get("resumed_at", 0)
        return spent.total_seconds() / made * (said["steps"] - said["step"]) if made > 0 else None
    except (KeyError, TypeError, ValueError):
        return None


def _accuracy(folder: Path, tail: int = 200_000) -> float | None:
    """The newest test accuracy; looks at the end of metrics.jsonl first, since long runs have long files."""
    try:
        with open(folder / "metrics.jsonl", "rb") as file:
            size = file.seek(0, 2)
            for start in (max(0, size - tail), 0):
                file.seek(start)
                for text in reversed(file.read().split(b"\n")):
                    if text.startswith(b'{"kind": "eval"') and text.endswith(b"}"):
                        return json.loads(text)["test_accuracy"]
    except (OSError, ValueError, KeyError):
        pass
    return None


def _json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
