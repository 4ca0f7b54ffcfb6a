"""Evaluations of several seeds as one curve."""

import pytest

from repro.report import curves


def test_mean_and_deviation() -> None:
    assert curves.mean_std([1.0, 3.0]) == (2.0, pytest.approx(2**0.5))
    assert curves.mean_std([2.0, None]) == (2.0, None)
    assert curves.mean_std([None]) == (None, None)


def test_curves_keep_the_epochs_that_all_seeds_have() -> None:
    lines = [
        {"epoch": float(e), "step": 10 * e, "train_loss": 1.0 * e, "test_loss": 0.0, "test_accuracy": 0.5}
        for e in (1, 2, 3)
    ]
    rows = curves.curve([lines, lines[:2]])
    assert [row["epoch"] for row in rows] == [1.0, 2.0]
    assert rows[1]["train_loss"] == 2.0 and rows[1]["train_loss_std"] == 0.0
    assert curves.seed_accuracies([lines, lines[:2]]) == [[0.5, 0.5], [0.5, 0.5]]
    assert curves.seed_accuracies([lines]) == [], "the curve has them"
