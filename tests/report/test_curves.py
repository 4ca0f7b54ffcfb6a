"""Evaluations of several seeds as one curve."""

import made_up_results
import pytest

from repro.figures import language
from repro.metric import PERPLEXITY
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


def test_a_seed_that_diverged_is_not_left_out_of_the_mean() -> None:
    seeds = [
        [
            {"epoch": 1.0, "step": 10, "train_loss": 5.0, "test_loss": 5.0, "test_perplexity": first},
            {"epoch": 2.0, "step": 20, "train_loss": 4.0, "test_loss": 4.0, "test_perplexity": last},
        ]
        for first, last in ((110.0, 100.0), (130.0, 120.0), (120.0, None))
    ]
    one, two = curves.curve(seeds, PERPLEXITY)
    assert (one["test_perplexity"], one["test_perplexity_std"]) == (120.0, 10.0)
    assert (two["test_perplexity"], two["test_perplexity_std"]) == (None, None)
    assert two["train_loss"] == 4.0
    assert curves.seed_accuracies(seeds, PERPLEXITY)[2] == [120.0, None]


def test_a_text_whose_perplexity_is_no_number_at_first_is_drawn_as_text() -> None:
    made = made_up_results.everything()
    for group in made.summaries["language"]["groups"]:
        group["curve"][0] |= {"test_perplexity": None}
    labels = {axes.get_ylabel() for axes in language.draw(language.table(made)).axes if axes.axison}
    assert "test perplexity" in labels and not any("accuracy" in label for label in labels)
