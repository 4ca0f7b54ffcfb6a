"""Tells where a run's momentum comes, and the learning rate that it amounts to."""

from __future__ import annotations

from typing import Any

AFTER, BEFORE, MASKED, NONE = RULES = (
    "momentum after aggregation",
    "before selection",
    "before selection, masked",
    "no momentum",
)


def rule(settings: dict[str, Any]) -> str:
    """Returns one of RULES. DGC's own momentum comes before its selection, and is masked."""
    algo = settings["algo"]
    if algo.get("correction"):
        return BEFORE if algo.get("mask", "none") == "none" else MASKED
    if algo["options"].get("momentum"):
        return MASKED
    return AFTER if settings["momentum"] else NONE


def effective_lr(settings: dict[str, Any]) -> float:
    """Returns lr / (1 - momentum): by how much of a constant gradient the weights move in a step, wherever it comes.

    A gain is as much as the momentum whose place it takes.
    """
    algo = settings["algo"]
    momentum = settings["momentum"] or algo.get("correction") or algo["options"].get("momentum") or 0.0
    return round(settings["lr"] * algo.get("gain", 1.0) / (1 - momentum), 9)
