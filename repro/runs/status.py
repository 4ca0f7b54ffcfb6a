"""Tells the states of the runs in a results folder, from their files, their locks, and SLURM's queue."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from repro import metric, screen
from repro.cluster import environment
from repro.cluster.slurm import JOB_PREFIX, LAUNCHES, OPEN
from repro.config.schema import Config, RunError
from repro.runs import lock, metrics, missing, run_folder, status_file

STATES = ("done", "running", "pending", "failed", "preempted", "new")


@dataclass(frozen=True)
class Run:
    """One run. `state` is one of STATES; new = never submitted or started."""

    name: str  # EXPERIMENT/RUN_ID
    state: str
    step: int = 0
    steps: int = 0
    evaluated: dict[str, Any] = field(default_factory=dict)  # the newest line on an evaluation
    eta_s: float | None = None
    error: str | None = None


def survey(results: Path, experiment: str | None = None) -> tuple[list[Run], str]:
    """Returns every run under `results`, begun, launched or waiting in the queue, of one experiment or of all.

    The text says why the queue did not answer, "" if it did or there is none: what the folders say is worth reading
    without it.
    """
    waiting, problem = queued(results) if (results / LAUNCHES).is_dir() else ({}, "")
    begun, launched = set(run_folder.run_folders(results)), _launched(results)
    folders = begun | waiting.keys() | launched.keys()
    known = not problem and shutil.which("squeue") is not None  # what waits in the queue
    found = []
    for folder in sorted(folder for folder in folders if experiment in (None, folder.parent.name)):
        one = run(folder, waiting.get(folder))
        if one.state == "new" and one.error is None and folder in launched and known:
            one = replace(one, error=f"launched, and neither begun nor in the queue: see {launched[folder]}")
        found.append(one)
    return found, problem


def _launched(results: Path) -> dict[Path, Path]:
    """Returns run folder -> the folder of its last launch."""
    return {
        folder: manifest.parent
        for manifest in sorted((results / LAUNCHES).glob("*/*.jsonl"))
        for folder in _listed(results, manifest)
        if folder is not None
    }


@cache  # a manifest is written once, and read for each of its jobs, and by --watch again and again
def _listed(results: Path, manifest: Path) -> Sequence[Path | None]:
    """Returns the folder on each line of a manifest, None for a line that cannot be read."""
    found: list[Path | None] = []
    try:
        lines = manifest.read_text().rstrip("\n").split("\n")
    except (OSError, ValueError):
        return []
    for line in lines:
        try:
            found.append(results / json.loads(line)["run"])
        except (ValueError, KeyError, TypeError):
            found.append(None)
    return found


def states(configs: Iterable[Config], results: Path, submitting: bool) -> tuple[dict[Path, str], str]:
    """Returns the state of each run's folder, and why the queue did not answer, "" if it did or there is none.

    Raises RunError if something is to be submitted and the queue does not answer: it may wait there already.
    """
    waiting, problem = queued(results)
    found = {config.folder: run(config.folder, waiting.get(config.folder)).state for config in configs}
    # looked at as closely as `repro run` does, which would train such a run again; `repro status` reads no whole file
    damaged = [folder for folder, state in found.items() if state == "done" and status_file.state(folder) != "done"]
    found |= dict.fromkeys(damaged, "failed")
    if problem and submitting and any(state in OPEN for state in found.values()):
        raise RunError(f"squeue: {problem}; nothing is submitted, as what waits is not known: try again later")
    return found, problem


class Job(NamedTuple):
    """A run's task in SLURM's queue: pending or running, and why it does not run yet."""

    state: str
    reason: str = ""


def run(folder: Path, job: Job | None) -> Run:
    """Returns the run in `folder`, whose task in the queue is `job`, if it has one."""
    name = f"{folder.parent.name}/{folder.name}"
    if os.path.lexists(folder) and not os.access(folder, os.X_OK):  # another user's
        return Run(name, "new", error="it may not be read")
    status = status_file.read_object(folder / "status.json")
    state, error = _said(folder, status)
    alive = lock.holder(folder) is not None
    if state != "done" and alive:
        state, error = "running", None
    elif state != "done" and job is not None:
        state, error = job
    elif state == "running":
        state, error = "failed", "ended without a word: killed, or its machine went down"
    step, steps = (value if isinstance(value := status.get(name), int) else 0 for name in ("step", "steps"))
    eta = _eta(folder, status) if state == "running" and alive else None
    return Run(name, state, step, steps, _evaluated(folder), eta, error)


def queued(results: Path) -> tuple[dict[Path, Job], str]:
    """Returns run folder -> job, for this user's jobs that `repro launch` submitted into `results`.

    The text says why the queue did not answer, "" if it did or there is none.
    """
    if shutil.which("squeue") is None:
        return {}, ""
    command = ["squeue", "--me", "--noheader", "--array", "--format=%j|%K|%T|%r"]
    try:
        env = environment.outside_of_jobs()
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {}, str(error)
    if done.returncode:
        return {}, (done.stderr.strip() or "it failed").splitlines()[0].removeprefix("squeue: error: ")
    jobs: dict[Path, Job] = {}
    for words in (line.split("|") for line in done.stdout.splitlines()):
        name, task, state, reason = words if len(words) == 4 else ("", "", "", "")
        launch, _, shape = name.removeprefix(JOB_PREFIX).rpartition("-")
        manifest = results / LAUNCHES / launch / f"{shape}.jsonl"
        if name.startswith(JOB_PREFIX) and task.isdigit() and manifest.is_file():
            listed = _listed(results, manifest)
            folder = listed[int(task) - 1] if 0 < int(task) <= len(listed) else None
            if folder is None:
                continue  # which run the job is cannot be told
            active = state in ("RUNNING", "COMPLETING", "SUSPENDED")
            if active or folder not in jobs:
                jobs[folder] = Job("running") if active else Job("pending", f"waits: {reason}")
    return jobs, ""


def table(runs: list[Run]) -> str:
    """Returns a table of the runs of each experiment, why runs failed or wait, and how many runs are in each state."""
    counts = [f"{sum(one.state == state for one in runs)} {state}" for state in STATES]
    parts = [_of_experiment(name, list(part)) for name, part in groupby(runs, lambda one: one.name.partition("/")[0])]
    return "\n\n".join([*parts, ", ".join(count for count in counts if not count.startswith("0 "))])


def _of_experiment(experiment: str, runs: list[Run]) -> str:
    table = screen.table(screen.filled([
        {
            "run": one.name.partition("/")[2],
            "state": one.state,
            "step": f"{one.step}/{one.steps}" if one.steps else None,
            **{measure.label: measure.cell(one.evaluated.get(measure.key)) for measure in metric.ALL},
            "left": None if one.eta_s is None else screen.duration(one.eta_s),
        }
        for one in runs
    ]))  # fmt: skip
    errors = [screen.sentence(f"{one.name.partition('/')[2]}: {one.error}") for one in runs if one.error]
    return "\n".join([f"experiment {experiment}", table, *errors])


def _said(folder: Path, status: dict[str, Any]) -> tuple[str, str | None]:
    """Returns the state and the error in status.json; a file that says neither is a failure, as is a cut end."""
    state, error, file = status.get("state"), status.get("error"), folder / "status.json"
    if not status and not file.exists():
        return "new", None
    if state not in STATES:
        return "failed", "status.json is damaged"
    reached = metrics.from_json(status.get("metrics"))
    if state == "done" and reached is not None and metrics.size(folder) != reached.bytes:
        return "failed", f"{metrics.NAME} is not what it was when the run ended"
    if state == "done":
        return state, missing.told(folder)
    return state, " ".join(error.split()) if isinstance(error, str) else None


def _eta(folder: Path, status: dict[str, Any]) -> float | None:
    """Estimates the seconds to the last step, at the pace since this start (its set-up included)."""
    provenance = status_file.read_object(folder / "provenance.json")
    try:
        spent = datetime.fromisoformat(status["updated"]) - datetime.fromisoformat(provenance["start"])
        made = status["step"] - provenance.get("resumed_at", 0)
        return spent.total_seconds() / made * (status["steps"] - status["step"]) if made > 0 else None
    except (KeyError, TypeError, ValueError):
        return None


def _evaluated(folder: Path, tail: int = 200_000) -> dict[str, Any]:
    """Returns the newest evaluation; reads the end of metrics.jsonl first, since long runs have long files."""
    if not (folder / metrics.NAME).is_file():
        return {}
    try:
        with open(folder / metrics.NAME, "rb") as file:
            size = file.seek(0, 2)
            for start in (max(0, size - tail), 0):
                file.seek(start)
                for text in reversed(file.read().split(b"\n")):
                    if text.startswith(b'{"kind": "eval"') and text.endswith(b"}"):
                        line = json.loads(text)
                        return {measure.key: _number(line.get(measure.key)) for measure in metric.ALL}
    except (OSError, ValueError, TypeError, RecursionError, OverflowError):
        pass
    return {}


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
