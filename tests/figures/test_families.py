"""The figure of all algorithms beside runs of other settings, and of other machines."""

from typing import Any

import committed_results
import made_up_results
import pytest
from made_up_groups import MACHINE, group, on_both_networks, whole
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from test_drawing import assert_readable, overlapping, shown, style  # noqa: F401  (a fixture)
from test_unlike_runs import changed, drawn

from repro import figures
from repro.figures._family_seconds import NETWORKS
from repro.report.summaries import Results

OTHER = MACHINE | {"cpu": "Another processor"}


def of_many_settings() -> list[dict[str, Any]]:
    """So many that each row's name is as long as half of a wide figure."""
    made = [on_both_networks(group("resnet20", algo, density=d)) for d in (0.001, 0.01) for algo in ("gtopk", "topk")]
    made += [on_both_networks(group("vgg16", "gtopk_butterfly", nodes=8)) | {"machine": OTHER}]
    made.append(changed(on_both_networks(group("resnet20", "dense", nodes=8)), precision="bfloat16"))
    made[-1]["data"] = "cifar10"
    return made


@pytest.mark.parametrize("width", figures.WIDTHS)
def test_beside_runs_of_other_settings_no_label_lies_over_another(width: str) -> None:
    """Rows' names took half the width, and the labels of the three panels lay over each other."""
    (item,) = figures.load(["families"])
    rows = item.table(Results(made_up_results.nothing().paper, {"families": {"groups": of_many_settings()}}))
    figure, _ = figures.drawn(item, rows, width=width)
    names = shown(figure.axes[0], figure.axes[0].yaxis)
    assert len(names) == 6 and any("CIFAR-10 (JPEG folder), float32" in " ".join(n.get_text().split()) for n in names)
    renderer = FigureCanvasAgg(figure).get_renderer()
    assert overlapping([*names, *(axes.xaxis.label for axes in figure.axes)], renderer) == []
    if width == "double":
        assert_readable(figure)
    assert figure.axes[0].get_window_extent().width > 0.19 * figure.bbox.width


def test_bytes_within_one_power_of_ten_have_ticks() -> None:
    """The panel of DGC and ScaleCom beside each other had none."""
    (item,) = figures.load(["families"])
    for many in (1600, 2100, 6500):
        runs = [on_both_networks(group("resnet20", "gtopk")), on_both_networks(group("resnet20", "topk"))]
        for run, sent in zip(runs, (1500, many), strict=True):
            run["per_step"] = run["per_step"] | {"bytes_sent": sent}
        figure, _ = figures.drawn(item, item.table(Results({}, {"families": {"groups": runs}})))
        labels = [label.get_text() for label in shown(figure.axes[1], figure.axes[1].xaxis)]
        assert len(labels) >= 3 and all(1000 < float(text) < 10_000 for text in labels)


def test_no_marker_is_cut_by_an_axis() -> None:
    """The limits had been those of the centres of the marks, and a margin of the rows' number."""
    for results in (
        committed_results.load(),
        Results({}, {"families": {"groups": [on_both_networks(group("vgg16", "ddp"))]}}),
    ):
        (item,) = figures.load(["families"])
        figure, _ = figures.drawn(item, item.table(results))
        assert all(inside(axes) for axes in figure.axes)


def inside(axes: Axes) -> bool:
    low, high = axes.get_ylim()
    centres = [float(y) for line in axes.get_lines() for y in line.get_ydata()]
    return min(centres) - low >= 0.4 - 1e-9 and high - max(centres) >= 0.4 - 1e-9


def test_the_machine_of_the_times_has_its_name_and_rows_without_a_time_theirs() -> None:
    """Said was "this machine", of a figure that another one may have drawn, and "gTop-k" of two rows."""
    here = [on_both_networks(group("resnet20", algo)) for algo in ("dense", "topk", "gtopk")]
    there = on_both_networks(group("resnet20", "gtopk", density=0.01)) | {"machine": OTHER}
    _, notes = drawn("families", *here, there)
    said = " ".join(notes)
    assert "all runs that were timed on the machine of most (A processor)" in said and "this machine" not in said
    assert "Without a time, as no run of theirs was timed there: gTop-k, ρ = 0.01." in said
    _, notes = drawn("families", group("resnet20", "dense") | {"iteration_time": []})
    assert "Without a time" not in " ".join(notes) and "Compute" not in " ".join(notes), "nothing has a time"


def test_where_another_schedule_was_timed_its_seconds_stand_beside_and_are_told() -> None:
    """Runs beside others are collected without times: the panel of iterations was nearly empty."""
    timed = [on_both_networks(group("resnet20", algo)) for algo in ("dense", "topk")]
    prefixes = [changed(group("resnet20", algo), scale_schedule=False) for algo in ("dense", "topk", "gtopk")]
    (item,) = figures.load(["families"])
    groups = [*timed, *(one | {"iteration_time": []} for one in prefixes)]
    rows = {row["algo"]: row for row in item.table(Results({}, {"families": {"groups": groups}}))}
    assert {row["schedule"] for row in rows.values()} == {"first 5 of 141 epochs"} and len(rows) == 3
    assert rows["dense"]["ethernet1g_ms"] and rows["topk"]["timed_on"] and rows["gtopk"]["ethernet1g_ms"] is None
    _, notes = drawn("families", *groups)
    said = " ".join(notes)
    assert "These runs are of the schedule of 141 epochs compressed to 5, float32." in said
    assert "Without a time, as no run of theirs was timed there: gTop-k." in said


def test_the_maps_iterations_stand_where_it_has_more_of_the_rows() -> None:
    """11 of 27 algorithms had no time, as nobody had timed a run of theirs on the machine of the others."""
    timed = [group("resnet20", "dense", density=1.0), *(group("resnet20", algo) for algo in ("topk", "gtopk"))]
    timed.append(group("resnet20", "gtopk", density=0.01))
    runs = [one | {"iteration_time": []} for one in timed]
    made = {
        "node": "paper", "density": 0.001, "machine": OTHER, "networks": [{"name": n} for n in NETWORKS],
        "rows": [{"model": "resnet20", "nodes": 4, "seconds": {"dense": [0.3, 0.2], "gtopk": [0.25, 0.15]}}],
    }  # fmt: skip
    (item,) = figures.load(["families"])

    def milliseconds(*groups: dict[str, Any], **tradeoff: Any) -> list[tuple[str, float, float]]:
        results = Results({}, {"families": {"groups": list(groups)}, "tradeoff": made | tradeoff})
        rows = sorted(item.table(results), key=lambda row: (row["algo"], row["density"]))
        _, notes = figures.drawn(item, rows)
        said.append(" ".join(notes))
        return [(row["algo"], row["density"], row["ethernet1g_ms"]) for row in rows]

    said: list[str] = []
    assert milliseconds(*runs) == [
        ("dense", 1, 300), ("gtopk", 0.001, 250), ("gtopk", 0.01, None), ("topk", 0.001, None)
    ]  # fmt: skip
    assert "published compute" in said[0] and "(Another processor)" in said[0]
    assert "Not on its map as trained here: gTop-k, ρ = 0.01; Top-k, ρ = 0.001." in said[0]
    assert milliseconds(*runs, node="measured")[0] == ("dense", 1, None), "compute of another machine"
    assert (
        milliseconds(*map(on_both_networks, timed))[2][2] and "timed on the machine of most (A processor)" in said[-1]
    )


def test_a_row_of_one_evaluation_is_not_said_to_be_a_mean() -> None:
    often, seldom = whole("dense", [0], epochs=15, density=1.0), whole("topk", [0], epochs=15)
    _, notes = drawn("families", often, seldom | {"curve": seldom["curve"][-1:]})
    assert "Means of epochs 11 to 15; of the last epoch alone, as others were not evaluated: Top-k." in " ".join(notes)
    _, notes = drawn("families", often, seldom)
    assert "Means of epochs 11 to 15. " in " ".join(notes)


def test_rows_say_whose_seeds_and_rules_they_have() -> None:
    """Dense of three seeds had stood above what was better than dense of the seed that both had."""
    (item,) = figures.load(["families"])
    rows = [
        row if row["algo"] == "dense" else row | {"seeds": "0"}  # whatever else was trained since
        for row in item.table(committed_results.load())
        if row["algo"] in ("dense", "qsgd", "fp16", "randomk", "onebit")
    ]
    figure, notes = figures.drawn(item, rows)
    said = " ".join(notes)
    assert "no momentum, 0.01: random-k" in said and "no momentum, 1: 1-bit SGD" in said
    (dense,) = (row for row in rows if row["algo"] == "dense")
    dashed = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert dashed == [100 * dense["accuracy_of_seed_0"]] and dense["accuracy_of_seed_0"] < dense["test_accuracy"]
    assert "Dashed: dense of seed 0" in said
    alone = [row | {"seeds": "0"} for row in rows]
    figure, notes = figures.drawn(item, alone)
    assert "Dashed" not in " ".join(notes) and not [x for x in figure.axes[0].lines if x.get_linestyle() == "--"]


def test_bytes_before_the_drawn_steps_are_told_and_no_node_sends_more_than_the_busiest() -> None:
    """DGC's bar was of 0.001, where 4 of its 15 epochs had more; two rows' busiest node sent less than rank 0."""
    (item,) = figures.load(["families"])
    rows = item.table(committed_results.load())
    assert all(row["busiest_bytes"] >= row["bytes_sent"] for row in rows)
    said = " ".join(figures.drawn(item, rows)[1])
    mean = (0.25 + 0.0625 + 0.015625 + 0.004 + 11 * 0.001) / 15
    assert f"0.25, 0.0625, 0.015625, 0.004 in the first 4 epochs, {mean / 0.001:.3g} times as many" in said
    assert "all entries in the first 878 steps of 5,850: 1-bit Adam" in said
