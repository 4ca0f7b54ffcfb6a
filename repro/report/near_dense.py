"""Tells how far algorithms, each by its own rules, end from dense in committed runs. Needs no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from repro.config import groups
from repro.config.parts import Algo
from repro.metric import ACCURACY
from repro.report import prefixes
from repro.report.group import Group, rounded
from repro.report.own_rules import by_own_rules
from repro.report.prefixes import Pooled
from repro.report.summaries import Results
from repro.report.verdicts import EPSILON, MARGIN
from repro.tables import Row

MODEL, DATA, NODES = "resnet20", "cifar10", 4  # with which all algorithms were trained


class Ending(NamedTuple):
    """Says by how many points of test accuracy an algorithm is above dense, and whether it counts as near."""

    points: float
    near: bool


class Beside(NamedTuple):
    """Has an algorithm's runs and dense's, pooled over seeds, by the mean of the last so many `epochs` up to one."""

    group: Group
    epoch: float
    epochs: int
    ours: Pooled
    dense: Pooled


def longest(results: Results, name: str, density: float) -> Beside | None:
    """Returns an algorithm's runs on NODES nodes where it and dense were trained longest, if there are such."""
    trained = [group for _, group in results.all_groups() if group.nodes == NODES and _counts(group)]
    own = [g for g in trained if g.algo == name and (_at(g, density) or not g.settings["algo"].get("sparse"))]
    return next(_longest_first(own, [group for group in trained if group.algo == "dense"]), None)


def endings(results: Results, nodes: int, density: float | None) -> dict[str, Ending]:
    """Returns how each algorithm ends beside dense, where both were trained longest.

    It is near if it ends at most the margin below, by the mean of its seeds, of which most have one. Schedules as they
    are written count before compressed ones, which say nothing of sparse algorithms: those start slowly. What these
    learn also depends on how many nodes share an update's k entries: their runs on the most nodes count, of all P on
    which any was trained at this density, that are no more than `nodes` (where there are none, the fewest). What others
    learn is taken from any P.
    """
    return _endings([group for _, group in results.all_groups() if _counts(group)], nodes, density)


def ending(results: Results, nodes: int, algo: Algo, density: float) -> Ending | None:
    """Returns how runs of this gain, wire format and density end beside dense, by the rule of `endings`, if there are.

    Those on more than `nodes` do not count: a gain that is right there may be too large here. Other options are the
    algorithm's own; whether runs had its density warm-up or another is not asked.
    """
    every = [group for _, group in results.all_groups()]
    own = [group for group in every if group.algo == algo.name and group.nodes <= nodes and _is(group, algo, density)]
    dense = [group for group in every if group.algo == "dense" and _counts(group)]
    return _endings([*own, *dense], nodes, density).get(algo.name)


def _endings(trained: Sequence[Group], nodes: int, density: float | None) -> dict[str, Ending]:
    sparse = [group for group in trained if _at(group, density) and density != 1 and not group.compressed]
    sizes = {group.nodes for group in sparse}
    there = max((size for size in sizes if size <= nodes), default=min(sizes, default=nodes))
    whole = [g for g in trained if g.settings["density"] == 1 and not g.settings["algo"].get("sparse")]
    known = whole + [group for group in sparse if group.nodes == there]
    dense = [group for group in whole if group.algo == "dense"]
    found = dict[str, Ending]()
    for algo in {group.algo for group in known} - {"dense"}:
        pair = next(_longest_first([group for group in known if group.algo == algo], dense), None)
        if pair is not None:
            points = pair.ours.above(pair.dense).mean
            found[algo] = Ending(points, points >= -MARGIN - EPSILON)
    return found


def _is(group: Group, algo: Algo, density: float) -> bool:
    """Returns whether a run has this gain, wire format and density, and is as the algorithm's file else."""
    settings, known = group.settings, groups.about(algo.name)
    gain, wire = rounded(settings["algo"].get("gain", 1.0)), settings["algo"].get("wire", "pairs")
    as_its_file = {"gain": known.get("gain", 1.0), "wire": known.get("wire", "pairs")}
    warmup = groups.algo_default(algo.name, MODEL, "density_warmup")
    lasting = [above for above in warmup if above > density]
    usual = settings | {"algo": settings["algo"] | as_its_file, "density_warmup": lasting}
    own = gain == rounded(algo.gain) and wire == algo.wire and _at(group, density)
    return own and _counts(dataclasses.replace(group, settings=usual))


def _at(group: Group, density: float | None) -> bool:
    """Returns whether a run has this density, as far as a summary's six digits go."""
    return bool(rounded(group.settings["density"]) == rounded(density))


def _counts(group: Group) -> bool:
    place = group.model, group.settings["data"]["name"], group.metric, group.settings["steps"]
    return place == (MODEL, DATA, ACCURACY, None) and by_own_rules(group.settings)


def _longest_first(own: Sequence[Group], dense: Sequence[Group]) -> Iterator[Beside]:
    """Yields an algorithm's runs, pooled over seeds, and dense's beside them, at the last epoch that a run shares.

    Of those as long, those of the most seeds come first, then those on the fewest nodes.
    """
    shared = [
        (not group.compressed, max(epochs), group)
        for group in own
        if (epochs := {row["epoch"] for row in group.curve} & {row["epoch"] for row in _curves(group, dense)})
    ]
    for _, epoch, group in sorted(shared, key=lambda one: (*one[:2], one[2].n, -one[2].nodes), reverse=True):
        over = prefixes.averaged(group, epoch)
        ours, theirs = (prefixes.at_epoch(_like(group, every), epoch, over) for every in (own, dense))
        if ours and theirs:
            yield Beside(group, epoch, over, *(max(every, key=lambda one: one.n) for every in (ours, theirs)))


def _like(group: Group, others: Sequence[Group]) -> list[Group]:
    return [one for one in others if prefixes.kind(one) == prefixes.kind(group)]


def _curves(group: Group, others: Sequence[Group]) -> list[Row]:
    return [row for one in _like(group, others) for row in one.curve]
