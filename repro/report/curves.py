"""Combines the evaluations of runs that differ only in their seed, epoch by epoch."""

import statistics
from collections.abc import Iterable
from typing import Any

from repro.tables import Row

CURVE = ("train_loss", "test_loss", "test_accuracy")
Evaluations = list[dict[str, Any]]  # the "eval" lines of one run's metrics.jsonl


def curve(evaluations: list[Evaluations]) -> list[Row]:
    """Returns mean and sample standard deviation over the seeds, at the epochs that every seed has evaluated."""
    by_epoch, common = _by_epoch(evaluations)
    rows = []
    for epoch in common:
        row: Row = {"epoch": epoch, "step": by_epoch[0][epoch]["step"]}
        for name in CURVE:
            mean, std = mean_std(lines[epoch].get(name) for lines in by_epoch)
            row |= {name: mean, f"{name}_std": std}
        rows.append(row)
    return rows


def seed_accuracies(evaluations: list[Evaluations]) -> list[list[float]]:
    """Returns test accuracies of each seed at the epochs of `curve`; [] for one seed, as the curve has them."""
    by_epoch, common = _by_epoch(evaluations)
    return [[lines[epoch]["test_accuracy"] for epoch in common] for lines in by_epoch] if len(by_epoch) > 1 else []


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
