"""Whole schedules, their first epochs and compressed ones: what shares a panel, and how it is told apart."""

from typing import Any

import made_up_groups
import made_up_results
import matplotlib.style
import pytest

from repro import figures
from repro.figures import _legend, convergence
from repro.report import summaries
from repro.report.summaries import Results


def run(algo: str, epochs: int, model: str = "resnet20", scaled: bool = False) -> dict[str, Any]:
    """Five epochs of a curve, whatever `epochs` says."""
    made = made_up_groups.group(model, algo)
    made["settings"] |= {"epochs": epochs, "scale_schedule": scaled}
    made["runs"] = [f"{made['runs'][0]}-{epochs}-{scaled}"]
    return made


def results(*groups: dict[str, Any]) -> Results:
    return Results(summaries.load().paper, {"convergence": {"groups": groups}}, made_up_results.REFERENCE)


def schedules(*groups: dict[str, Any]) -> set[tuple[str, str]]:
    rows = convergence.table(results(*groups))
    return {(row["algo"], row["schedule"]) for row in rows if row["source"] == "trained"}


def test_runs_of_the_schedule_as_it_is_go_before_compressed_ones() -> None:
    compressed = [run(algo, 5, scaled=True) for algo in ("dense", "gtopk")]
    assert schedules(*compressed) == {(a, "schedule of 141 epochs compressed to 5") for a in ("dense", "gtopk")}
    assert schedules(*compressed, run("gtopk", 15)) == {("gtopk", "first 15 of 141 epochs")}
    both = [run("gtopk", 15), run("gtopk", 141), run("dense", 15)]
    assert schedules(*compressed, *both) == {("gtopk", "141 epochs"), ("dense", "first 15 of 141 epochs")}


def test_the_reference_stands_beside_the_schedule_as_it_is_alone() -> None:
    def sources(*groups: dict[str, Any]) -> set[tuple[str, str]]:
        return {(row["source"], row["algo"]) for row in convergence.table(results(*groups))}

    assert sources(run("gtopk", 5, scaled=True)) == {("trained", "gtopk")}
    assert sources(run("gtopk", 15)) == {("trained", "gtopk"), ("reference", "dense"), ("reference", "topk")}
    assert sources() == set()


@pytest.mark.parametrize(
    "groups",
    [
        [run("gtopk", 141)],
        [run("dense", 15)],
        [run("gtopk", 141), run("dense", 15), run("topk", 5, "vgg16", scaled=True)],
        [run("gtopk", 95, "alexnet")],
    ],
    ids=["one whole run", "one short run", "whole, short and compressed", "a model without reference"],
)
def test_it_draws_what_is_there(groups: list[dict[str, Any]]) -> None:
    (item,) = figures.load(["convergence"])
    rows = item.table(results(*groups))
    assert figures.render(item, rows, ["png"])["png"].startswith(b"\x89PNG")


def test_the_first_epochs_look_unlike_a_whole_schedule() -> None:
    with matplotlib.style.context(figures.STYLE):
        figure = convergence.draw(convergence.table(results(run("gtopk", 141), run("dense", 15))))
    lines = {str(line.get_label()): line for axes in figure.axes for line in axes.get_lines()}
    assert {"gTop-k", "dense, first epochs", "reference, dense", "reference, Top-k"} <= set(lines)
    assert lines["dense, first epochs"].get_markerfacecolor() == "white" != lines["gTop-k"].get_markerfacecolor()
    assert lines["dense, first epochs"].get_linewidth() < lines["gTop-k"].get_linewidth()
    note = " ".join(_legend.notes_of(figure))
    assert "first 15 of 141 epochs, float32" in note and "141 epochs, float32" in note


def test_the_minutes_are_those_of_the_published_throughput() -> None:
    paper = summaries.load().paper
    rows = [row for row in convergence.table(results(run("gtopk", 141), run("gtopk_butterfly", 141)))]
    last = {row["algo"]: row["published_s"] for row in rows if row["epoch"] == 5}
    assert last["gtopk"] == pytest.approx(500 * 32 / paper["throughput_per_node"]["resnet20"]["gtopk"][4])
    assert last["gtopk_butterfly"] is None, "nothing was published of it"
