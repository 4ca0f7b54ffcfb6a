"""Reads from committed training curves when a test accuracy, or perplexity, was reached. Needs no torch.

It counts as reached at the first of two evaluations in a row that are both as good: before the learning rate drops, a
single one is noisy, and a spike would be taken for a gain of many epochs. The last evaluation of a curve counts alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from repro.report.summaries import Group, Results

EXPERIMENTS = ("convergence", "families", "language")  # whose curves are read; a name may go on after these
RULE = "the first of two evaluations in a row that are as good, or the last of a curve"  # for captions and printed text


@dataclass(frozen=True)
class Reach:
    """Says when the runs of `group` became as good as `target`, by the rule above, if all of them did.

    `epochs` and `samples` have one number for each seed; where a summary has only mean and deviation over seeds, one
    for the mean plus the deviation and one for the mean less it. They are empty if not all of these got there.
    """

    group: Group
    target: float
    epochs: tuple[float, ...]
    samples: tuple[float, ...]
    elsewhere: str = ""  # in what they differ from the runs that are compared, if they got there: schedule or precision

    @property
    def best(self) -> float:
        """Returns the best accuracy, or perplexity, the mean over the seeds at one epoch."""
        return best(self.group)

    @property
    def mean_samples(self) -> float:
        return statistics.fmean(self.samples)

    @property
    def missed(self) -> str:
        """Says why the target does not count as reached where the best value is as good; "" where there is no such."""
        measure = self.group.metric
        if self.samples or self.elsewhere or not measure.reached(self.best, self.target):
            return ""
        once = all(any(measure.reached(value, self.target) for value in curve) for curve in _curves(self.group))
        return "not twice in a row" if once else "not by all seeds"

    def said(self) -> str:
        """Says how sure this is: the number of seeds, and their range in epochs."""
        if not self.epochs:
            best_value = self.group.metric.short(self.best)
            return f"{self.missed or 'not'} in {self.group.epochs:g} epochs, best {best_value}"
        low, high = min(self.epochs), max(self.epochs)
        return f"{f'epoch {low:g}' if low == high else f'epochs {low:g} to {high:g}'}, n = {self.group.n}"


def best(group: Group) -> float:
    found = group.metric.best(row[group.metric.key] for row in group.curve)
    return group.metric.worst if found is None else found


def reach(group: Group, target: float) -> Reach:
    settings = group.settings
    batch = group.nodes * settings["batch_per_node"] * settings["accumulate"]
    firsts = [_first([group.metric.reached(value, target) for value in curve]) for curve in _curves(group)]
    got = [group.curve[place] for place in firsts if place is not None]
    if not got or len(got) < len(firsts):
        return Reach(group, target, (), ())
    return Reach(group, target, tuple(row["epoch"] for row in got), tuple(row["step"] * batch for row in got))


def _first(reached: Sequence[bool]) -> int | None:
    """Returns the place of the first evaluation that counts, None if none does: see RULE."""
    pairs = zip(reached, [*reached[1:], True], strict=True)  # after the last one there is none to be worse
    return next((place for place, both in enumerate(pairs) if all(both)), None)


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
    return [g for name, g in results.all_groups() if name.startswith(EXPERIMENTS) and len(g.curve) > 1]


def schedule(group: Group) -> str:
    """Returns on what schedule a run was: a compressed one drops the rate sooner, and so is no fair competitor."""
    written = group.settings["schedule_epochs"]
    return f"{written} epochs compressed to {group.settings['epochs']}" if group.compressed else f"{written} epochs"


def of_one_schedule(groups: Iterable[Group], target: float, precision: str = "float32") -> list[Group]:
    """Returns the groups of one schedule and one precision: those with which most algorithms reached the target.

    Of several, the schedule as it is written comes first, then `precision`.
    """
    alike: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        alike.setdefault((schedule(group), group.settings["precision"]), []).append(group)

    def order(own: Sequence[Group]) -> tuple[int, bool, bool, float]:
        reached = {(g.algo, g.settings["density"]) for g in own if reach(g, target).samples}
        preferred = own[0].settings["precision"] == precision
        return len(reached), not own[0].compressed, preferred, max(group.epochs for group in own)

    return max(alike.values(), key=order, default=[])


def soonest(groups: Iterable[Group], target: float) -> Reach | None:
    """Returns of these groups, which are alike, the one that needed the fewest samples; else the most accurate."""
    reaches = [reach(group, target) for group in groups]
    got = [one for one in reaches if one.samples]
    if got:
        return min(got, key=lambda one: one.mean_samples)
    return max(reaches, key=goodness, default=None)


def goodness(found: Reach) -> float:
    """Returns a number that is larger for a better network."""
    return -found.best if found.group.metric.falls else found.best
