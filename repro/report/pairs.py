"""Decides which runs may be compared, at which epoch, and tells how far apart they are."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from repro.report import intervals
from repro.report.group import Group
from repro.report.intervals import Interval
from repro.report.momentum import compared_lr
from repro.report.same_settings import same_data


@dataclass(frozen=True)
class Pair:
    """Holds a group and its reference, alike in all but the algorithm, at the last epoch that both have."""

    ours: Group
    reference: Group
    epoch: float

    @property
    def whole(self) -> bool:
        """Returns whether both have the whole schedule as it is written."""
        return self.ours.whole and self.reference.whole

    @property
    def schedule(self) -> str:
        """Returns the shorter of the two schedules, because it is the one that is compared."""
        return min(self.ours, self.reference, key=lambda group: group.epochs).schedule

    @property
    def accuracies(self) -> tuple[float, float]:
        """Returns the mean test accuracies of both at that epoch, in percent: of the seeds that both have, if any."""
        both = (self.ours, self.reference)
        if shared := self.seeds():
            ours, theirs = (accuracies(one, self.epoch) for one in both)
            return statistics.fmean(ours[seed] for seed in shared), statistics.fmean(theirs[seed] for seed in shared)
        return mean(self.ours, self.epoch)[0], mean(self.reference, self.epoch)[0]

    def seeds(self) -> list[int]:
        """Returns the seeds whose accuracy both have kept."""
        return sorted(accuracies(self.ours, self.epoch).keys() & accuracies(self.reference, self.epoch))

    def difference(self, noise: float | None) -> Interval:
        """Returns by how many points ours is above the reference, paired by seed where both kept each seed's own."""
        mine, theirs = accuracies(self.ours, self.epoch), accuracies(self.reference, self.epoch)
        means = mean(self.ours, self.epoch), mean(self.reference, self.epoch)
        return intervals.of_runs(mine, theirs, means, noise)


def alike(one: Group, other: Group) -> bool:
    """Returns whether two runs may be compared: all of `_like`, and the images, are the same."""
    return _like(one) == _like(other) and same_data(vars(one), vars(other))


def _like(group: Group) -> tuple[Any, ...]:
    """Returns the settings that two runs must share; the length of an uncompressed run is not part of it.

    Momentum may come elsewhere, or not at all, if the learning rate, or a gain, makes up for it.
    """
    settings = group.settings
    return (
        group.model,
        group.nodes,
        group.batch,
        settings["precision"],
        compared_lr(settings),
        settings.get("lr_warmup_epochs"),
        settings.get("lr_warmup_from", "nodes"),
        settings.get("lr_drop_factor"),
        tuple(settings["lr_drops"]),
        settings["weight_decay"],
        settings.get("weight_decay_of", "all"),
        settings.get("clip_grad") or 0.0,
        bool(settings.get("hierarchical")),
        settings.get("on_nonfinite", "stop"),
        settings["schedule_epochs"],
        settings["steps"],
        settings["epochs"] if group.compressed else None,
    )


def best(
    ours: Iterable[Group], references: Iterable[Group], meets: Callable[[Pair], bool] = lambda pair: True
) -> Pair | None:
    """Returns the pair that may be compared and says most: uncompressed, the longest, with most seeds, of one seed,
    of the original images.

    One that `meets` a claim's conditions goes before all that do not.
    """
    references = list(references)
    pairs = [pair for one in ours for other in references if (pair := of(one, other))]
    return max(pairs, key=lambda pair: (meets(pair), *worth(pair)), default=None)


def worth(pair: Pair) -> tuple[bool, float, int, int, bool]:
    """Returns by what `best` ranks pairs."""
    n = min(pair.ours.n, pair.reference.n)
    return not pair.ours.compressed, pair.epoch, n, len(pair.seeds()), not pair.ours.encoded


def of(one: Group, other: Group) -> Pair | None:
    """Pairs both at the last epoch that they share; returns None where they are unlike."""
    if one.runs == other.runs or not alike(one, other):
        return None
    common = {row["epoch"] for row in one.curve} & {row["epoch"] for row in other.curve}
    return Pair(one, other, max(common)) if common else None


def accuracies(group: Group, epoch: float) -> dict[int, float]:
    """Returns the test accuracy of each seed at `epoch`, in percent; {} where the summary kept only the mean."""
    place = next(index for index, row in enumerate(group.curve) if row["epoch"] == epoch)
    if group.n == 1:
        return {group.seeds[0]: 100 * group.curve[place]["test_accuracy"]}
    return {seed: 100 * own[place] for seed, own in zip(group.seeds, group.seed_accuracies, strict=False)}


def mean(group: Group, epoch: float) -> tuple[float, float | None, int]:
    """Returns mean and deviation of the test accuracies at `epoch`, in percent, and the number of seeds."""
    row = group.at(epoch)
    std = row["test_accuracy_std"]
    return 100 * row["test_accuracy"], None if std is None else 100 * std, group.n
