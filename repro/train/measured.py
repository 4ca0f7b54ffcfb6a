"""Takes the measured iteration from the "step" lines of all sessions that ran on one kind of machine."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from repro.iteration_time import PARTS, IterationTime
from repro.report import same_machine

WARM_UP = 2  # steps of each session that do not count


def iteration(
    lines: Sequence[dict[str, Any]], sessions: Sequence[dict[str, Any]], timed_on: dict[str, Any], period: int
) -> IterationTime | None:
    """Returns the median step, or the mean of an algorithm that does not communicate in every step; None without any.

    Steps of another density than that of the last, as of a density warm-up, do not count, nor do those of a session,
    as provenance.json has it, on another kind of machine than `timed_on`.
    """
    steps = [line for line in lines if line["kind"] == "step"]
    rows = [
        IterationTime.of(line).row()
        for line in steps
        if line.get(PARTS[0]) is not None
        and line.get("density") == steps[-1].get("density")
        and not line.get("skipped")
        and _counts(line["step"], sessions, timed_on)
    ]
    if not rows:
        return None
    rows = rows[len(rows) % period :] or rows  # whole periods, where there is one
    middle = statistics.median if period == 1 else statistics.fmean
    return IterationTime(**{part: middle(row[part] for row in rows) for part in rows[0]})


def _counts(step: int, sessions: Sequence[dict[str, Any]], timed_on: dict[str, Any]) -> bool:
    """Returns whether the session that made a step is one of that machine, and had warmed up."""
    began = [one for one in sessions if one.get("resumed_at") is not None and one["resumed_at"] < step]
    return bool(began) and step > began[-1]["resumed_at"] + WARM_UP and same_machine.alike(began[-1], timed_on)
