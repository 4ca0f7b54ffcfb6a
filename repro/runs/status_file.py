"""Writes and reads status.json, which says how a run stands, and the failures of runs that nobody else could tell."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from repro.cluster import environment
from repro.config.compose import to_yaml
from repro.config.schema import Config, RunError
from repro.json_text import json_text
from repro.runs import lock, metrics
from repro.runs.metrics import Position
from repro.runs.wandb_mirror import redact
from repro.whole_files import FULL, explain, overwrite, write_whole


def write(
    folder: Path, state: str, step: int, steps: int, error: str | None = None, reached: Position | None = None
) -> None:
    """Writes status.json; `reached` is all of metrics.jsonl where the run is done.

    On a full disk it writes over the status that is there, as `running` would be wrong.
    """
    said = {} if reached is None else {"metrics": reached._asdict()}
    text = json_text({"state": state, "step": step, "steps": steps, "error": error, "updated": now(), **said})
    text = redact(text) + "\n"
    file = folder / "status.json"
    try:
        write_whole(file, text)
    except OSError as full:
        if full.errno not in FULL or state == "done" or not file.exists():
            raise
        overwrite(file, text)


def refused(config: Config, error: str) -> None:
    """Writes `failed` for a run that could not begin or go on, for `repro status`; where it has by now, nothing."""
    _fail(config, error, ("preempted",))


def failed(config: Config, error: str) -> None:
    """Writes `failed` for a rank 0 that could not, unless the run has ended or another process holds the folder."""
    _fail(config, error, ("running", "preempted"))


def _fail(config: Config, error: str, states: Sequence[str]) -> None:
    folder = config.folder
    status, owner = read_object(folder / "status.json"), lock.holder(folder)
    step = environment.step()  # a rank of the owner's own start, on another machine perhaps
    ours = owner is None or lock.is_mine(owner) or (step is not None and owner.get("step") == step)
    with suppress(OSError):  # the error itself still reaches the screen
        if not (folder / "status.json").exists() and ours:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / "config.yaml", to_yaml(config))
            write(folder, "failed", 0, 0, error)
        elif status.get("state") in states and ours:
            write(folder, "failed", status.get("step", 0), status.get("steps", 0), error)


def state(folder: Path) -> str | None:
    """Returns the state in status.json, None where there is none.

    A run is not done, but failed, where metrics.jsonl is not what it was when the run ended.
    """
    status = read_object(folder / "status.json")
    said = status.get("state")
    reached = metrics.from_json(status.get("metrics"))
    if said == "done" and reached is not None and metrics.changed(folder, reached):
        return "failed"
    return said if isinstance(said, str) else None


def reason(error: BaseException) -> str:
    """Returns what to write and say of an error that ends a run."""
    if isinstance(error, OSError) and error.errno in FULL:
        return explain(error)
    return str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}"


def read_object(file: Path) -> dict[str, Any]:
    """Returns the JSON object in a file, {} where there is none."""
    try:
        content = json.loads(file.read_text()) if file.is_file() else {}  # a pipe, say, would not end
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
