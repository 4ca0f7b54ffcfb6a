"""Finds runs in other experiments that are as if of one's own.

The first epochs of a whole run are those of a run that ends there, and a whole run is the same whatever it was for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from repro.metric import ACCURACY, Metric
from repro.report import intervals, pairs, same_settings
from repro.report.group import Group
from repro.report.intervals import Interval
from repro.report.summaries import Results

WHOLE = "convergence"  # the experiment of whole runs
EPOCHS = 5  # ours: their mean is compared where the learning rate is high, and accuracy moves by points an epoch


@dataclass(frozen=True)
class Pooled:
    """Holds accuracies in percent at one epoch; `group` has the settings of all runs, but for where they end."""

    group: Group
    mean: float
    std: float | None
    n: int
    accuracies: dict[int, float]  # by seed; {} where old summaries of several seeds kept the mean alone

    @property
    def seeds(self) -> str:
        """Returns the seeds, for a cell of a table; where only their mean was kept, those of the group."""
        return " ".join(map(str, sorted(self.accuracies or self.group.seeds)))

    def above(self, other: Pooled, noise: float | None = None) -> Interval:
        """Returns by how many points it is above `other`: of the seeds that both have, if any. `noise`: of one pair."""
        means = (self.mean, self.std, self.n), (other.mean, other.std, other.n)
        return intervals.of_runs(self.accuracies, other.accuracies, means, noise)


def kind(group: Group) -> tuple[object, ...]:
    """Returns what runs must share to stand in one panel at one epoch, whatever the algorithm and its rates are."""
    compressed = group.settings["epochs"] if group.compressed else None
    return group.model, group.nodes, group.settings["precision"], compressed, group.data, group.batch


def is_prefix(group: Group) -> bool:
    """Returns whether a run has the first epochs of its schedule as it is written, and not all."""
    return not group.whole and not group.compressed


def averaged(group: Group, epoch: float) -> int:
    """Returns of how many epochs up to there the mean is compared: EPOCHS before the learning rate drops, else one."""
    before_drops = epoch <= min(group.settings["lr_drops"], default=math.inf)
    return EPOCHS if not group.compressed and before_drops and epoch >= EPOCHS else 1


def at_epoch(groups: Iterable[Group], epoch: float, epochs: int = 1) -> list[Pooled]:
    """Returns one item for all groups of one setting, but for where they end, and one data, with an evaluation there.

    A run has the mean of its evaluations in the last so many `epochs` up to there: at a high learning rate accuracy
    moves by points from one epoch to the next. One that was evaluated less often there is left out.
    A seed that was trained more than once, as on two processors, which round unlike, has the mean of its runs. Groups
    that kept the mean of their seeds alone count where no other has a seed's own: the one of the most seeds.
    """
    evaluated = [group for group in groups if _is_evaluated(group, epoch, epochs)]
    return [_pooled(same, epoch, epochs) for same in of_one_setting(evaluated)]


def whole_runs_at_its_end(group: Group, groups: Iterable[Group]) -> Pooled | None:
    """Returns the whole runs among `groups` of a prefix's setting and images, where it ends; None where none is."""
    if group.metric is not ACCURACY:
        return None
    setting = of_any_length(group)
    same = [one for one in groups if one.whole and of_any_length(one) == setting and _same_data(one, group)]
    return next(iter(at_epoch(same, group.epochs)), None)


def each_once(groups: Iterable[Group]) -> list[Group]:
    """Returns the groups without repeats of the same runs: of two that share a first run, the one of more seeds."""
    found: dict[tuple[str, str, float], Group] = {}
    for group in groups:
        key = group.runs[0], group.data, group.epochs
        if group.n >= found.get(key, group).n:
            found[key] = group
    return list(found.values())


def of_any_length(group: Group) -> str:
    """Returns what groups of one setting share, but for where they end."""
    return same_settings.identity(vars(group), whole=not group.compressed)


def of_one_setting(groups: Iterable[Group]) -> list[list[Group]]:
    """Returns the groups in lists of one setting, but for where they end, and one data."""
    settings: dict[str, list[list[Group]]] = {}
    for group in groups:
        of_setting = settings.setdefault(of_any_length(group), [])
        members = next((some for some in of_setting if all(_same_data(group, one) for one in some)), None)
        if members is None:
            of_setting.append(members := [])
        members.append(group)
    return [members for of_setting in settings.values() for members in of_setting]


def _is_evaluated(group: Group, epoch: float, epochs: int) -> bool:
    at = [row["epoch"] for row in group.curve if epoch - epochs < row["epoch"] <= epoch]
    return epoch in at and len(at) >= epochs


def _pooled(same: list[Group], epoch: float, epochs: int) -> Pooled:
    ends = [[row["epoch"] for row in one.curve if epoch - epochs < row["epoch"] <= epoch] for one in same]
    each = _by_seed([
        _by_seed([pairs.accuracies(one, end) for end in own]) for one, own in zip(same, ends, strict=True)
    ])  # fmt: skip
    if not each:
        largest, own = max(zip(same, ends, strict=True), key=lambda one: one[0].n)
        means, stds, _ = zip(*(pairs.mean(largest, end) for end in own), strict=True)
        std = stds[0] if len(own) == 1 else None  # that of several epochs' mean cannot be told from theirs
        return Pooled(largest, statistics.fmean(means), std, largest.n, {})
    values = list(each.values())
    std = statistics.stdev(values) if len(values) > 1 else None
    return Pooled(same[0], statistics.fmean(values), std, len(values), each)


def _same_data(one: Group, other: Group) -> bool:
    return same_settings.same_data(vars(one), vars(other))


def _by_seed(runs: list[dict[int, float]]) -> dict[int, float]:
    seeds = dict.fromkeys(seed for run in runs for seed in run)
    return {seed: statistics.fmean(run[seed] for run in runs if seed in run) for seed in seeds}


def with_whole_runs(results: Results, experiment: str, measure: Metric | None = None) -> list[Group]:
    """Returns the experiment's groups and, if one of them is whole, the whole runs of convergence that it has too.

    Those are of the settings of any of its groups, however long and in whatever precision that one was trained. Of two
    groups of one setting it is the one of more seeds, the experiment's own if they have as many.
    """
    own = results.groups(experiment, measure)
    if experiment == WHOLE or not any(group.whole for group in own):
        return own
    settings, there = ([name(group) for group in own] for name in (_setting, _identity))
    whole = [group for group in results.groups(WHOLE, measure) if group.whole]
    of_these = [group for group in whole if _among(group, _setting(group), settings, own)]
    twice = {id(one): group for group in of_these for one in _among(group, _identity(group), there, own)}
    chosen = [max(one, twice.get(id(one), one), key=lambda group: group.n) for one in own]
    return chosen + [group for group in of_these if not any(group is other for other in twice.values())]


def _among(group: Group, name: str, names: Iterable[str], own: Iterable[Group]) -> list[Group]:
    """Returns those of `own`, whose `names` are given, that have this name and the group's data."""
    return [one for other, one in zip(names, own, strict=True) if other == name and _same_data(group, one)]


def _identity(group: Group) -> str:
    return same_settings.identity(vars(group))


def _setting(group: Group) -> str:
    settings = group.settings | {"precision": "float32", "steps": None}
    return same_settings.identity(vars(group) | {"settings": settings}, whole=True)
