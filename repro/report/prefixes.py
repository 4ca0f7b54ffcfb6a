"""Pools runs at one epoch: the first epochs of a whole run are those of a run of the same settings that ends there."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from repro.report import pairs, same_settings
from repro.report.summaries import Group


@dataclass(frozen=True)
class Pooled:
    """Holds the accuracy of each seed at one epoch; `group` has the settings of all, but for where they end."""

    group: Group
    accuracies: dict[int, float]  # in percent, by seed

    @property
    def n(self) -> int:
        return len(self.accuracies)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.accuracies.values())

    @property
    def std(self) -> float | None:
        return statistics.stdev(self.accuracies.values()) if self.n > 1 else None


def at_epoch(groups: Iterable[Group], epoch: float) -> list[Pooled]:
    """Returns one item for all groups of the same settings, but for where they end, that have an evaluation there."""
    settings: dict[str, list[Group]] = {}
    for group in groups:
        if any(row["epoch"] == epoch for row in group.curve):
            settings.setdefault(same_settings.identity(vars(group), whole=not group.compressed), []).append(group)
    return [
        Pooled(same[0], {seed: value for one in same for seed, value in pairs.accuracies(one, epoch).items()})
        for same in settings.values()
    ]
