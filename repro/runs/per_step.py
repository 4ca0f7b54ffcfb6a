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
    found |= over_ranks(lines)
    return {name: value for name, value in found.items() if value is not None or name != "framing"}


def over_ranks(lines: Lines) -> dict[str, float]:
    """Returns what the mean and the busiest rank sent in a mean step of those that `usual` has of rank 0.

    That is as the last evaluation has it; where messages depend on values, over all evaluations of the last density,
    weighted by their steps, of which each is the first to count what was sent since the one before.
    """
    steps, weights = _alike(lines), dict[int, int]()
    evaluated = {line["step"]: line for line in lines if line["kind"] == "eval" and OVER_RANKS[0] in line}
    last, counted = max(evaluated, default=0), {line["step"] for line in steps}
    for at in sorted(evaluated):
        before = max((one for one in evaluated if one < at), default=0)
        weights[at] = sum(before < step <= at for step in counted)
    if not steps or not steps[-1].get("varies") or not sum(weights.values()):
        weights = {at: int(at == last) for at in evaluated}
    total = sum(weights.values())
    means = {name: sum(weights[at] * evaluated[at][name] for at in weights) / total for name in OVER_RANKS if total}
    return {name: int(value) if value.is_integer() else value for name, value in means.items()}


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
