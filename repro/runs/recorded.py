"""Reads `recorded.json`, what a run recorded of the steps in `probe_steps`."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from repro.config.schema import Config

NAME = "recorded.json"


def records(file: Path) -> list[dict[str, Any]] | None:
    """Returns one record for each step; None where there is no file, or a damaged one."""
    try:
        found = json.loads(file.read_text())
        known = all(isinstance(record["step"], int) for record in found)
        return list(found) if known and isinstance(found, list) else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def damaged(file: Path) -> str | None:
    """Returns why what an earlier session recorded cannot be kept; None where it can, or where there is nothing."""
    return f"{file.name} is damaged" if os.path.lexists(file) and records(file) is None else None


def missed(config: Config, step: float = math.inf) -> str | None:
    """Returns what to say where a run, done or at `step`, is past some `probe_steps` without a record; None elsewhere.

    They may have been typed only after it had made them.
    """
    there = {record["step"] for record in records(config.folder / NAME) or []}
    gone = [str(number) for number in sorted(set(config.probe_steps)) if number <= step and number not in there]
    if not gone:
        return None
    return (
        f"probe_steps={config.probe_steps}: the run is past step {', '.join(gone)} without a record; "
        f"remove {config.folder} to train it again"
    )
