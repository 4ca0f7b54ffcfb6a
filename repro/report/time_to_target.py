"""Reads from committed training curves when a test accuracy, or perplexity, was first reached. Needs no torch."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from repro.report.summaries import Group, Results

EXPERIMENTS = ("convergence", "families", "language")  # whose curves are read; a name may go on after these


@dataclass(frozen=True)
class Reach:
    """Says when the runs of `group` first were as good as `target` at the end of an epoch, if all of them were.

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

    def said(self) -> str:
        """Says how sure this is: the number of seeds, and their range in epochs."""
        if not self.epochs:
            return f"not in {self.group.epochs:g} epochs, best {self.group.metric.short(self.best)}"
        low, high = min(self.epochs), max(self.epochs)
        return f"{f'epoch {low:g}' if low == high else f'epochs {low:g} to {high:g}'}, n = {self.group.n}"


def best(group: Group) -> float:
    found = group.metric.best(row[group.metric.key] for row in group.curve)
    return group.metric.worst if found is None else found


def reach(group: Group, target: float) -> Reach:
    settings = group.settings
    batch = group.nodes * settings["batch_per_node"] * settings["accumulate"]
    firsts = [
        next((row for row, value in zip(group.curve, curve, strict=True) if group.metric.reached(value, target)), None)
        for curve in _curves(group)
    ]
    got = [row for row in firsts if row is not None]
    if not got or len(got) < len(firsts):
        return Reach(group, target, (), ())
    return Reach(group, target, tuple(row["epoch"] for row in got), tuple(row["step"] * batch for row in got))


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
