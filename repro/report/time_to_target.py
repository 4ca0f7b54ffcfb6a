"""Reads from committed training curves when a test accuracy, or perplexity, was reached. Needs no torch.

It counts as reached at the first of two evaluations in a row that are both as good: before the learning rate drops, a
single one is noisy, and a spike would be taken for a gain of many epochs. The last evaluation of a curve counts alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from repro.report import prefixes
from repro.report.group import Group
from repro.report.summaries import Results
from repro.screen import plural

EXPERIMENTS = ("convergence", "families", "language", "many_nodes")  # whose first epochs count, or how such names begin
RULE = "the first of two evaluations in a row that are as good, or the last of a curve"  # for captions and printed text
TOO_SHORT = "trained for too few epochs"  # of seeds that are left out
WITHIN = (
    "where n = 1, within one run: from its first epoch at the target to that from which it stays there, or else to its "
    "last"
)
MISSED_AT_ITS_END = ", at whose end it is missed"  # of a range within one run
MOST = 3  # runs with other settings that are named: those of the fewest samples


@dataclass(frozen=True)
class Within:
    """Holds a range within one run: from its first evaluation at the target to that from which it stays there.

    Where the run misses the target again at its end, so that it does not stay, the range goes to its last evaluation.
    """

    epochs: tuple[float, float]
    samples: tuple[float, float]
    stays: bool

    def said(self) -> str:
        low, high = self.epochs
        return f"{low:g} to {high:g} within one run{'' if self.stays else MISSED_AT_ITS_END}"


@dataclass(frozen=True)
class Reach:
    """Says when the runs of one setting became as good as `target`, by the rule above, if all of them did.

    `epochs` and `samples` have one number for each seed; where a summary has only mean and deviation over seeds, one
    for the mean plus the deviation and one for the mean less it. They are empty if not all of these got there. A seed
    with only the first epochs of its schedule, which end before the target, is left out: it may get there later.
    """

    group: Group  # of several that differ in where they end, the longest
    target: float
    epochs: tuple[float, ...]
    samples: tuple[float, ...]
    n: int  # seeds that got there; all, where they did not
    seeds: tuple[int, ...]  # these
    left_out: int = 0
    missed: str = ""  # why the target does not count as reached where the best value is as good
    elsewhere: str = ""  # in what they differ from the runs that are compared
    within: Within | None = None  # of a single seed; None where it stays at the target from its first epoch there

    @property
    def best(self) -> float:
        """Returns the best accuracy, or perplexity, the mean over the seeds at one epoch."""
        return best(self.group)

    @property
    def mean_samples(self) -> float:
        return statistics.fmean(self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """Returns the fewest and the most samples: over seeds, or within the run of a single one."""
        return self.within.samples if self.within else (min(self.samples), max(self.samples))

    def said(self) -> str:
        """Says how sure this is: the number of seeds, and their range in epochs, or that within one run."""
        if not self.epochs:
            not_there = self.elsewhere or f"{self.missed or 'not'} in {self.group.epochs:g} epochs"
            return f"{not_there}, best {self.group.metric.short(self.best)}"
        low, high = min(self.epochs), max(self.epochs)
        left_out = f"{plural(self.left_out, 'seed')} left out, {TOO_SHORT}" if self.left_out else ""
        within = f" ({self.within.said()})" if self.within else ""
        span = f"epoch {low:g}{within}" if low == high else f"epochs {low:g} to {high:g}"
        return ", ".join(filter(None, (span, f"n = {self.n}", left_out)))


def best(group: Group) -> float:
    found = group.metric.best(row[group.metric.key] for row in group.curve)
    return group.metric.worst if found is None else found


def reach(same: Sequence[Group], target: float) -> Reach:
    """Returns when the runs of groups of one setting, that may end at unlike epochs, became as good as `target`.

    A seed that was trained more than once counts by its longest curve. Groups that kept the mean of their seeds alone
    count where no other has a seed's own: of these the longest.
    """
    by_length = sorted(same, key=lambda group: group.epochs, reverse=True)
    runs: dict[int, tuple[Group, list[bool]]] = {}
    for group in [group for group in by_length if _by_seed(group)] or by_length[:1]:
        # a mean more and less its deviation stand for two of the seeds
        for seed, curve in zip(group.seeds, _curves(group), strict=False):
            runs.setdefault(seed, (group, [group.metric.reached(value, target) for value in curve]))
    longest = next(group for group, _ in runs.values())
    found = [(group, _first(reached)) for group, reached in runs.values()]
    got = [group.curve[place] for group, place in found if place is not None]
    within = [_within(group, reached) for group, reached in runs.values() if _first(reached) is not None]
    left_out = sum(place is None and _by_seed(group) and _is_cut(group) for group, place in found)
    n = len(runs) if _by_seed(longest) else longest.n
    if got and len(got) + left_out == len(found):
        batch = longest.nodes * longest.batch
        epochs, samples = zip(*((row["epoch"], row["step"] * batch) for row in got), strict=True)
        single = within[0] if len(got) == 1 else None
        there = tuple(seed for seed, (_, reached) in runs.items() if _first(reached) is not None)
        seeds = there if _by_seed(longest) else tuple(longest.seeds)  # of a mean all
        return Reach(longest, target, epochs, samples, n - left_out, seeds, left_out, within=single)
    once = all(any(reached) for _, reached in runs.values())
    missed = "not twice in a row" if once else "not by all seeds"
    seeds = tuple(runs) if _by_seed(longest) else tuple(longest.seeds)
    return Reach(
        longest, target, (), (), n, seeds, missed=missed if longest.metric.reached(best(longest), target) else ""
    )


def _by_seed(group: Group) -> bool:
    return group.n == 1 or bool(group.seed_accuracies)


def _is_cut(group: Group) -> bool:
    """Returns whether a run has only the first epochs of its schedule."""
    return group.settings["steps"] is not None or not (group.whole or group.compressed)


def _first(reached: Sequence[bool]) -> int | None:
    """Returns the place of the first evaluation that counts, None if none does: see RULE."""
    pairs = zip(reached, [*reached[1:], True], strict=True)  # after the last one there is none to be worse
    return next((place for place, both in enumerate(pairs) if all(both)), None)


def _within(group: Group, reached: Sequence[bool]) -> Within | None:
    """Returns the range within a run that reached the target; None where it stays there from the first epoch on."""
    first, last = reached.index(True), len(reached) - 1
    stays = next((place + 1 for place in range(last, -1, -1) if not reached[place]), 0)
    if stays <= first:
        return None
    low, high = group.curve[first], group.curve[min(stays, last)]
    batch = group.nodes * group.batch
    return Within((low["epoch"], high["epoch"]), (low["step"] * batch, high["step"] * batch), stays <= last)


def _curves(group: Group) -> list[list[float]]:
    """Returns the values of each seed by row of the curve, or those one deviation above and below the mean."""
    if group.seed_accuracies:
        return group.seed_accuracies
    key, worst = group.metric.key, group.metric.worst
    mean = [worst if row[key] is None else row[key] for row in group.curve]
    if group.n == 1:
        return [mean]
    apart = [row.get(f"{key}_std") or 0.0 for row in group.curve]
    return [[a + side * b for a, b in zip(mean, apart, strict=True)] for side in (1, -1)]


def trained(results: Results) -> list[Group]:
    """Returns the committed runs that have a curve; one evaluation at the end does not say when."""
    counting = [g for name, g in results.all_groups() if g.whole or name.startswith(EXPERIMENTS)]
    return [group for group in counting if len(group.curve) > 1]


def schedule(group: Group) -> str:
    """Returns on what schedule a run was: a compressed one drops the rate sooner, and so is no fair competitor."""
    written = group.settings["schedule_epochs"]
    return f"{written} epochs compressed to {group.settings['epochs']}" if group.compressed else f"{written} epochs"


def comparable(groups: Iterable[Group], target: float, nodes: int = 0, precision: str = "float32") -> list[Group]:
    """Returns the groups of one schedule, precision, batch, P and data, as curves of unlike ones are not compared.

    These are those on `nodes` nodes if two algorithms were trained on them, else on any; of several those with which
    most algorithms reached the target. Then the schedule as it is written comes first, where none did the longest runs,
    then `precision`, then the P of most algorithms, `nodes`, and the fewest nodes.
    """
    alike: dict[tuple[Any, ...], list[Group]] = {}
    for group in groups:
        kind = schedule(group), group.settings["precision"], group.batch, group.nodes, group.data
        alike.setdefault(kind, []).append(group)

    def order(own: Sequence[Group]) -> tuple[bool, int, bool, float, bool, int, bool, int, float]:
        trained, here = of_each_algorithm(own, target), own[0].nodes == nodes
        reached = sum(bool(found.samples) for found in trained)
        preferred = own[0].settings["precision"] == precision
        longest = max(group.epochs for group in own)
        two_here, written = here and len(trained) > 1, not own[0].compressed
        unmet = 0.0 if reached else longest  # of which a whole one says most
        return two_here, reached, written, unmet, preferred, len(trained), here, -own[0].nodes, longest

    return max(alike.values(), key=order, default=[])


def of_each_algorithm(groups: Iterable[Group], target: float) -> list[Reach]:
    """Returns when each algorithm, at each density, reached the target in these groups, which are comparable."""
    alike: dict[tuple[str, float], list[Group]] = {}
    for group in groups:
        alike.setdefault((group.algo, group.settings["density"]), []).append(group)
    return [found for own in alike.values() if (found := soonest(own, target)) is not None]


def reaches(groups: Iterable[Group], target: float) -> list[Reach]:
    """Returns one item for each setting: seeds in groups that differ in where they end count together."""
    return [reach(same, target) for same in prefixes.of_one_setting(groups)]


def beside(groups: Iterable[Group], compared: Sequence[Group], target: float) -> list[Reach]:
    """Returns when runs with other settings than the `compared` reached the target, those of the fewest samples.

    Their images and precision are those of the compared ones if such runs got there, or else of the first.
    """
    found = sorted((one for one in reaches(groups, target) if one.samples), key=lambda one: one.mean_samples)
    kinds = [*map(images_and_precision, compared[:1]), *(images_and_precision(one.group) for one in found)]
    alike = ([one for one in found if images_and_precision(one.group) == kind] for kind in kinds)
    return next(filter(None, alike), [])[:MOST]


def images_and_precision(group: Group) -> tuple[str, str]:
    """Returns what curves that stand beside each other share, whatever else their settings are."""
    return group.data, group.settings["precision"]


def soonest(groups: Iterable[Group], target: float) -> Reach | None:
    """Returns of these groups' settings, which are alike, the one with the fewest samples; else the most accurate."""
    known = reaches(groups, target)
    got = [one for one in known if one.samples]
    if got:
        return min(got, key=lambda one: one.mean_samples)
    return max(known, key=goodness, default=None)


def goodness(found: Reach) -> float:
    """Returns a number that is larger for a better network."""
    return -found.best if found.group.metric.falls else found.best
