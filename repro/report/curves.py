"""Combines runs that differ only in their seed: their evaluations, epoch by epoch, and their iteration times."""

import statistics
from collections.abc import Iterable
from typing import Any

from repro.iteration_time import IterationTime
from repro.metric import ACCURACY, Metric
from repro.tables import Row

LOSSES = ("train_loss", "test_loss")
Evaluations = list[dict[str, Any]]  # the "eval" lines of one run's metrics.jsonl


def curve(evaluations: list[Evaluations], measure: Metric = ACCURACY) -> list[Row]:
    """Returns mean and sample standard deviation over the seeds, at the epochs that every seed has evaluated.

    Both are None where a seed has no number, as one that diverged: they would be those of fewer seeds than are named.
    """
    by_epoch, common = _by_epoch(evaluations)
    rows = []
    for epoch in common:
        row: Row = {"epoch": epoch, "step": by_epoch[0][epoch]["step"]}
        for name in (*LOSSES, measure.key):
            values = [lines[epoch].get(name) for lines in by_epoch]
            mean, std = (None, None) if None in values else mean_std(values)
            row |= {name: mean, f"{name}_std": std}
        rows.append(row)
    return rows


def seed_accuracies(evaluations: list[Evaluations], measure: Metric = ACCURACY) -> list[list[float]]:
    """Returns each seed's accuracies, or perplexities, by row of `curve`; [] for one seed, whose curve has them."""
    by_epoch, common = _by_epoch(evaluations)
    return [[lines[epoch][measure.key] for epoch in common] for lines in by_epoch] if len(by_epoch) > 1 else []


def middle(reported: list[list[dict[str, Any]]]) -> list[Row]:
    """Returns each iteration time that all runs report, as the middle run has it; of an even number, the faster."""
    everyones = [{(line["source"], line["network"]): line for line in lines} for lines in reported]
    rows = []
    for place in everyones[0]:
        same = [lines[place] for lines in everyones if place in lines]
        if len(same) == len(everyones):
            chosen = sorted(same, key=lambda line: IterationTime.of(line).total)[(len(same) - 1) // 2]
            rows.append({k: v for k, v in chosen.items() if k != "kind"})
    return rows


def _by_epoch(evaluations: list[Evaluations]) -> tuple[list[dict[float, dict[str, Any]]], list[float]]:
    """Returns each seed's evaluations by epoch, and the epochs that all seeds have."""
    by_epoch = [{line["epoch"]: line for line in lines} for lines in evaluations]
    return by_epoch, sorted(set.intersection(*map(set, by_epoch))) if by_epoch else []


def mean_std(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Returns mean and sample standard deviation; None for the mean of no value and the deviation of one."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None
