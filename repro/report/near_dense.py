"""Tells how far algorithms, each by its own rules, end from dense in committed runs. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from repro.config import groups
from repro.metric import ACCURACY
from repro.report import intervals, prefixes
from repro.report.as_published import as_published, other_schedule
from repro.report.group import Group
from repro.report.intervals import Interval
from repro.report.prefixes import Pooled
from repro.report.summaries import Results
from repro.report.verdicts import EPSILON, MARGIN

MODEL, DATA = "resnet20", "cifar10"  # with which all algorithms were trained


def is_near(difference: Interval | None) -> bool:
    """Returns whether runs were made, and they do not show that it ends more than the margin below dense."""
    return difference is not None and difference.high >= -MARGIN - EPSILON


def differences(results: Results, nodes: int, density: float | None) -> dict[str, Interval]:
    """Returns by how many points of test accuracy each algorithm is above dense where both were trained longest.

    Of schedules as they are written, else of compressed ones, and paired by seed. What a sparse algorithm learns
    depends on how many nodes share an update's k entries: for more nodes than any was trained on, the most of these
    count; for fewer, the fewest. What others learn is taken from any number.
    """
    trained = [group for _, group in results.all_groups() if _counts(group)]
    dense = [group for group in trained if group.algo == "dense"]
    sizes = {group.nodes for group in trained if group.settings["density"] < 1}
    there = max((size for size in sizes if size <= nodes), default=min(sizes, default=nodes))
    noise, found = intervals.noise_of_repeats(results.reference), {}
    for algo in {group.algo for group in trained} - {"dense"}:
        own = [
            group
            for group in trained
            if group.algo == algo
            and (group.settings["density"] == 1 or (group.settings["density"], group.nodes) == (density, there))
        ]
        if (difference := _difference(own, dense, noise)) is not None:
            found[algo] = difference
    return found


def _counts(group: Group) -> bool:
    settings = _with_gain(group.settings)
    place = group.model, settings["data"]["name"], group.metric, settings["steps"]
    return place == (MODEL, DATA, ACCURACY, None) and as_published(settings) and not other_schedule(settings)


def _with_gain(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings in which a rate that is as many times the usual one as the algorithm's gain is that gain."""
    algo, usual = settings["algo"], groups.default(MODEL, "lr")
    known = groups.about(algo["name"]) if algo["name"] in groups.group_options("algo") else {}
    gain = known.get("gain", 1.0)
    if algo.get("gain", 1.0) == 1 != gain and settings["lr"] == usual * gain:
        return settings | {"lr": usual, "algo": algo | {"gain": gain}}
    return settings


def _difference(own: Sequence[Group], dense: Sequence[Group], noise: float | None) -> Interval | None:
    shared = [
        (not one.compressed, max(epochs), one)
        for one in own
        if (epochs := {row["epoch"] for row in one.curve} & _evaluated(_beside(one, dense)))
    ]
    if not shared:
        return None
    _, epoch, longest = max(shared, key=lambda one: one[:2])
    over = prefixes.averaged(longest, epoch)
    ours, theirs = (
        max(prefixes.at_epoch(_beside(longest, every), epoch, over), key=lambda one: one.n, default=None)
        for every in (own, dense)
    )
    return None if ours is None or theirs is None else _of(ours, theirs, noise)


def _of(ours: Pooled, theirs: Pooled, noise: float | None) -> Interval:
    if seeds := sorted(ours.accuracies.keys() & theirs.accuracies):
        return intervals.of_pairs([ours.accuracies[seed] - theirs.accuracies[seed] for seed in seeds], noise)
    one, other = ((pooled.mean, pooled.std, pooled.n) for pooled in (ours, theirs))
    return intervals.of_means(one, other, noise)


def _beside(group: Group, others: Sequence[Group]) -> list[Group]:
    return [one for one in others if (prefixes.kind(one), one.batch) == (prefixes.kind(group), group.batch)]


def _evaluated(runs: Sequence[Group]) -> set[float]:
    return {row["epoch"] for group in runs for row in group.curve}
