"""Tells where a run's momentum comes, and the learning rate that it amounts to."""

from __future__ import annotations

from typing import Any

from repro.config import groups

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


def usual_lr(model: str) -> float | None:
    """Returns the `effective_lr` of a network's own settings; None where they have no learning rate."""
    lr = groups.default(model, "lr")
    return None if lr is None else round(lr / (1 - groups.default(model, "momentum")), 9)


def compared_lr(settings: dict[str, Any]) -> float:
    """Returns the effective learning rate at which two runs are alike: a gain above the usual momentum's is left out.

    Larger updates than dense S-SGD's are what an algorithm chose to do, as its density is.
    """
    own, algo = effective_lr(settings), settings["algo"]
    usual = round(settings["lr"] / (1 - _usual(settings)), 9)
    return min(own, usual) if algo.get("gain", 1.0) > 1 else own


def is_usual(settings: dict[str, Any]) -> bool:
    """Returns whether the run has the momentum of the network's own settings, after aggregation."""
    return bool(settings["momentum"] == _usual(settings))


def _usual(settings: dict[str, Any]) -> float:
    return float(groups.default(settings["model"]["name"], "momentum"))
