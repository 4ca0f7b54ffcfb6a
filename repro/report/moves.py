"""Tells how often an entry can move in a run, and how often a node sends what it holds of one. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from repro.config import groups
from repro.density import entries
from repro.report.group import Group


def union(algo: str) -> bool:
    """Returns whether an update holds what all nodes selected, up to k of each, and not k entries."""
    return bool(groups.about_known(algo).get("union"))


def all_send(algo: str) -> bool:
    """Returns whether every node sends each entry of an update, where with others about one node does."""
    about = groups.about_known(algo)
    return bool(about.get("all_send", not about.get("sparse", True)))


def moves(algo: str, selections: float, nodes: int) -> float:
    """Returns how many times an entry can be in the update, on average over all entries."""
    return selections * (nodes if union(algo) else 1)


def sent(algo: str, selections: float, nodes: int) -> float:
    """Returns how many times a node sends what it holds of an entry, on average over all, and it gets into the update.

    The k largest entries of unlike nodes are nearly all unlike: each of an update's k is what one node held.
    """
    return moves(algo, selections, nodes) / (1 if all_send(algo) else nodes)


def selections(group: Group, epoch: float, known: dict[str, Any], whole: bool = False) -> float:
    """Returns how many times a node selects an entry up to an evaluation, on average; `whole`: in all the schedule.

    `known` are networks by name, as results/paper.yaml has them: of one that is not there k counts as density * m.
    """
    settings = group.settings
    steps = group.at(epoch)["step"]
    of_schedule = _of_schedule(group)
    if whole:  # as it is written, with warm-ups of full length
        steps, epoch = round(steps * settings["schedule_epochs"] / epoch), settings["schedule_epochs"]
        of_schedule = 1.0
    parameters = known.get(group.model, {}).get("parameters")
    return summed(settings["density"], settings["density_warmup"], steps / epoch / of_schedule, steps, parameters)


def _of_schedule(group: Group) -> float:
    """Returns how many epochs of the schedule as it is written one of the run has, and so of a warm-up."""
    return group.settings["schedule_epochs"] / group.settings["epochs"] if group.compressed else 1.0


def at_densities(group: Group, samples: float) -> dict[float, float]:
    """Returns how many of a run's first `samples` it took at each density: at those of its warm-up first."""
    last = group.curve[-1]
    per_epoch = last["step"] * group.nodes * group.batch / last["epoch"] / _of_schedule(group)
    found: dict[float, float] = {}
    for density in group.settings["density_warmup"]:
        now = min(per_epoch, samples)
        found[density], samples = found.get(density, 0.0) + now, samples - now
    final = group.settings["density"]
    return found | {final: found.get(final, 0.0) + samples}


def summed(
    density: float, warmup: Sequence[float], per_epoch: float, steps: int, parameters: int | None = None
) -> float:
    """Returns the sum of the densities of `steps` steps; those of `warmup` have `per_epoch` steps each.

    With `parameters` each is that of the k entries that it selects of so many, which is rounded down.
    """
    if parameters is not None:
        density, *warmup = (entries(one, parameters) / parameters for one in (density, *warmup))
    begins = [min(steps, math.ceil(number * per_epoch)) for number in range(len(warmup) + 1)]
    warm = sum(one * (end - begin) for one, begin, end in zip(warmup, begins, begins[1:], strict=False))
    return warm + density * (steps - begins[-1])
