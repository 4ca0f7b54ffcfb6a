"""Says what a step of a run sent, from the lines of its metrics.jsonl: the usual step, the range, the busiest rank.

The "step" lines count rank 0's messages. Where their sizes depend on values (`varies`), a single step says little, so
mean and range are over all steps of the last density. The "eval" lines compare the ranks.
"""

from __future__ import annotations

from typing import Any

Lines = list[dict[str, Any]]

COUNTED = ("k", "bytes_sent", "messages", "rounds", "framing")
OVER_RANKS = ("bytes_sent_mean_rank", "bytes_sent_worst_rank")


def usual(lines: Lines, name: str) -> float | None:
    """Returns `name` of the last step; the mean where steps differ: over its period, or over all that are alike."""
    values = [line.get(name) for line in _alike(lines)]
    known = [value for value in values if value is not None]
    if not known:
        return None
    return known[-1] if min(known) == max(known) else sum(known) / len(known)


def between(lines: Lines, name: str) -> tuple[float, float] | None:
    """Returns the least and the most of `name` over the steps, where it depends on values; else None."""
    values = [line[name] for line in _alike(lines) if line.get("varies")]
    return (min(values), max(values)) if values else None


def counted(lines: Lines) -> dict[str, Any]:
    """Returns all that a summary keeps of a run's traffic; {} where the run has no step."""
    if not any(line["kind"] == "step" for line in lines):
        return {}
    found = {name: usual(lines, name) for name in COUNTED}
    if span := between(lines, "bytes_sent"):
        found |= dict(zip(("bytes_sent_least", "bytes_sent_most"), span, strict=True))
    evaluated = next((line for line in reversed(lines) if line["kind"] == "eval" and OVER_RANKS[0] in line), {})
    found |= {name: evaluated[name] for name in OVER_RANKS if name in evaluated}
    return {name: value for name, value in found.items() if value is not None or name != "framing"}


def _alike(lines: Lines) -> Lines:
    """Returns the last step, its period, or, where messages depend on values, all steps of its density."""
    steps = [line for line in lines if line["kind"] == "step"]
    steps = [line for line in steps if not line.get("skipped")] or steps
    if not steps:
        return []
    last = steps[-1]
    if last.get("varies"):
        return [line for line in steps if line.get("density") == last.get("density")]
    return steps[-last.get("period", 1) :]
