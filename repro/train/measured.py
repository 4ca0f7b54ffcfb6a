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
    """Returns the mean of the middle steps, or of all for an algorithm that does not communicate in each; None without.

    Steps of another density than that of the last, as of a density warm-up, do not count, nor do those of a session,
    as provenance.json has it, on another kind of machine than `timed_on`.
    """
    steps = [line for line in lines if line["kind"] == "step"]
    by_session: dict[int, list[dict[str, float]]] = {}
    for line in steps:
        alike = line.get("density") == steps[-1].get("density") and not line.get("skipped")
        session = _session(line["step"], sessions, timed_on)
        if line.get(PARTS[0]) is not None and alike and session is not None:
            by_session.setdefault(session, []).append(IterationTime.of(line).row())
    if not by_session:
        return None
    rows = [row for own in by_session.values() for row in own[len(own) % period :]]  # whole periods, where there is one
    rows = rows or [row for own in by_session.values() for row in own]
    chosen = _middle(rows) if period == 1 else rows
    return IterationTime(**{part: statistics.fmean(row[part] for row in chosen) for part in rows[0]})


def _middle(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Returns the middle fifth of the steps by what they took, one or two at least.

    Not the median of each part: who computes long waits less, and the sum of those would be no step's.
    """
    longer = sorted(rows, key=lambda row: IterationTime(**row).total)
    count = len(rows) // 5 or 1
    count += (len(rows) - count) % 2  # as many on either side
    return longer[(len(rows) - count) // 2 :][:count]


def _session(step: int, sessions: Sequence[dict[str, Any]], timed_on: dict[str, Any]) -> int | None:
    """Returns which session made a step; None of one on another machine, or that had not warmed up."""
    began = [
        place for place, one in enumerate(sessions) if one.get("resumed_at") is not None and one["resumed_at"] < step
    ]
    if not began or step <= sessions[began[-1]]["resumed_at"] + WARM_UP:
        return None
    return began[-1] if same_machine.alike(sessions[began[-1]], timed_on) else None
