"""Which runs share a column of curves, where the reference stands, and between which accuracies a column is drawn."""

from typing import Any

import pytest
from test_convergence import changed, results, run

from repro.figures import _curves, convergence


def on_made_up_data(algo: str, **settings: Any) -> dict[str, Any]:
    """Accuracies about 10 %; its name sorts before that of CIFAR-10."""
    made = changed(run(algo, 141), data="a made-up set", **settings)
    made["settings"]["data"] = made["settings"]["data"] | {"name": "a made-up set"}
    made["curve"] = [row | {"test_accuracy": 0.1} for row in made["curve"]]
    return made


@pytest.mark.parametrize("nodes", [2, 4])
def test_the_reference_stands_in_the_column_of_its_data_alone(nodes: int) -> None:
    """It stood in the first column, of fewer nodes or of other data, and was missing from its own."""
    groups = [on_made_up_data("dense", nodes=nodes), run("dense", 141), changed(run("dense", 141), nodes=32)]
    columns = dict(_curves.columns(convergence.table(results(*groups))))
    beside = [title for title, rows in columns.items() if any(row["source"] == "reference" for row in rows)]
    assert len(columns) == 3 and beside == ["ResNet-20, P = 4, CIFAR-10 (JPEG folder)"]
    rows = convergence.table(results(run("dense", 141), changed(run("dense", 96), data="cifar10")))
    (beside,) = (rows for title, rows in _curves.columns(rows) if title == "ResNet-20, CIFAR-10")
    assert any(row["source"] == "reference" for row in beside), "the originals go first"
    alone = convergence.table(results(on_made_up_data("dense")))
    assert {row["source"] for row in alone} == {"trained"}


def test_no_accuracy_of_other_data_or_of_short_runs_lies_below_a_cut_axis() -> None:
    """The axes of a model were all those of its whole runs."""
    short = changed(run("dense", 141), nodes=8, epochs=2)
    short["curve"] = [row | {"test_accuracy": 0.05} for row in short["curve"][:2]]
    whole = [run("dense", 141), changed(run("dense", 141), nodes=32)]
    figure = convergence.draw(convergence.table(results(*whole, short, on_made_up_data("dense", nodes=16))))
    panels = [axes for axes in figure.axes if axes.axison][4:8]  # by P: 4, 8, 16, 32
    lows = [axes.get_ylim()[0] for axes in panels]
    assert lows[0] == lows[3] == 25 and lows[1] < 5 and lows[2] < 10


def test_a_column_without_published_throughput_has_no_panel_of_minutes() -> None:
    """It was drawn empty, from 0 to 1."""
    groups = [changed(run("dense", 141), nodes=3), run("dense", 141), changed(run("dense", 141), nodes=5)]
    figure = convergence.draw(convergence.table(results(*groups)))
    minutes = figure.axes[6:9]
    assert [axes.axison for axes in minutes] == [False, True, False]
    assert minutes[1].get_ylabel() == "test accuracy (%)"
