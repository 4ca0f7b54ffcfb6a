"""Runs of unlike settings beside each other, as they are once a user adds their own: none is joined to another's line,
mixed into its factor or mean, or called by its name, and nothing fails."""

from typing import Any

import made_up_groups
import made_up_results
import pytest
from made_up_groups import dilated, group, in_stages, measured, on_a_v100, on_both_networks
from matplotlib.figure import Figure

from repro import figures
from repro.figures import _times, dilated_iterations, many_nodes, speedups, tradeoff_dilated
from repro.report.summaries import Results
from repro.tables import Row

PAPER = made_up_results.nothing().paper
GPU = made_up_groups.MACHINE | {"gpus": ["NVIDIA H200"]}


def changed(made: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """The same group with other settings; of `algo` those alone that are given."""
    algo = made["settings"]["algo"] | settings.pop("algo", {})
    return made | {"settings": made["settings"] | settings | {"algo": algo}, "runs": [f"another, {settings} {algo}"]}


def drawn(name: str, *groups: dict[str, Any], of: str = "") -> tuple[Figure, list[str]]:
    (item,) = figures.load([name])
    return figures.drawn(item, item.table(Results(PAPER, {of or name: {"groups": groups}})))


def lines(figure: Figure) -> dict[str, list[float]]:
    """The x of each line by its label, all of which rise."""
    found = {line.get_label(): list(map(float, line.get_xdata())) for axes in figure.axes for line in axes.get_lines()}
    found = {label: xs for label, xs in found.items() if not label.startswith(("_", "learning rate"))}
    for label, xs in found.items():
        assert xs == sorted(set(xs)), f"{label}: {xs}"
    return found


def test_a_setting_that_came_later_than_a_run_had_its_default_there() -> None:
    old = group("resnet20", "dense", density=1)
    assert "weight_decay_of" not in old["settings"]
    later = changed(group("resnet20", "dense", density=1), weight_decay_of="weights")
    (item,) = figures.load(["accuracies"])
    rows = item.table(Results(PAPER, {"convergence": {"groups": [old, later]}}))
    assert [row["weight_decay_of"] for row in rows] == ["all", "weights"]


def test_two_runs_of_one_algorithm_are_told_apart_among_the_families() -> None:
    made = [group("resnet20", a, density=d) for a, d in (("dense", 1), ("gtopk", 0.001), ("gtopk", 0.01))]
    figure, _ = drawn("families", *made, group("vgg16", "gtopk", density=0.01))
    assert sorted(label.get_text() for label in figure.axes[0].get_yticklabels()) == [
        "dense, ResNet-20", "gTop-k, ResNet-20, ρ = 0.001", "gTop-k, ResNet-20, ρ = 0.01", "gTop-k, VGG-16, ρ = 0.01"
    ]  # fmt: skip
    figure, _ = drawn("families", *made[:2])
    assert sorted(label.get_text() for label in figure.axes[0].get_yticklabels()) == ["dense", "gTop-k"]


def test_families_in_the_lab_keep_their_modelled_seconds() -> None:
    made = on_both_networks(group("resnet20", "dense"))
    slow = made["iteration_time"][0]
    made["iteration_time"].append(slow | {"source": "measured", "communicate_s": 9.0})
    (row,) = figures.load(["families"])[0].table(Results(PAPER, {"families": {"groups": [made]}}))
    assert row["ethernet1g_ms"] == pytest.approx(1e3 * (0.1 + 0.01 + 0.4))


def test_two_rates_of_a_compressed_schedule_are_one_curve_of_the_usual_rate() -> None:
    usual = group("resnet20", "gtopk")
    other = changed(group("resnet20", "gtopk"), lr=0.05)
    other["curve"] = [row | {"test_accuracy": 0.99} for row in other["curve"]]
    for groups in ((usual, other), (other, usual)):
        figure, _ = drawn("convergence", group("resnet20", "dense"), *groups)
        assert len(lines(figure)["gTop-k"]) == 5
        (item,) = figures.load(["convergence"])
        rows = item.table(Results(PAPER, {"convergence": {"groups": groups}}))
        assert {row["test_accuracy"] for row in rows} == {row["test_accuracy"] for row in usual["curve"]}


def test_another_weight_decay_does_not_stand_for_dense() -> None:
    usual = changed(group("resnet20", "dense"), scale_schedule=False)
    other = changed(usual, weight_decay_of="weights")
    other["curve"] = [row | {"test_accuracy": 0.99} for row in other["curve"]]
    (item,) = figures.load(["convergence"])
    for groups in ((usual, other), (other, usual)):
        rows = item.table(Results(PAPER, {"convergence": {"groups": groups}}))
        found = {row["test_accuracy"] for row in rows}
        assert found >= {row["test_accuracy"] for row in usual["curve"]} and 0.99 not in found


def test_a_density_figure_is_of_gtopk_and_a_batch_has_its_line() -> None:
    made = [group("resnet20", "gtopk"), group("resnet20", "topk"), group("resnet20", "gtopk", batch=64)]
    figure, _ = drawn("density_sensitivity", group("resnet20", "dense"), *made)
    assert set(lines(figure)) >= {"dense, batch 32", "gTop-k, batch 32, ρ = 0.001", "gTop-k, batch 64, ρ = 0.001"}


def test_batches_of_other_densities_networks_and_nodes_have_lines_of_their_own() -> None:
    made = [group("resnet20", "gtopk", batch=b, density=d) for b in (32, 64) for d in (0.001, 0.01)]
    made += [group("vgg16", "gtopk", batch=b) for b in (32, 64)] + [group("resnet20", "gtopk", batch=32, nodes=8)]
    made[-1]["curve"] = [row | {"step": 50 * row["epoch"]} for row in made[-1]["curve"]]
    figure, _ = drawn("batch_sensitivity", *made)
    assert len(lines(figure)) == 4
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert ticks == ["32", "64\n500 steps"], "at 32 there are two numbers of steps"


def test_two_rules_of_the_residual_are_two_lines() -> None:
    records = [made_up_results.record(nodes) for nodes in (2, 4)]
    made = [group("resnet20", "gtopk", nodes=n, recorded=[r]) for n, r in zip((2, 4), records, strict=True)]
    exact = [changed(one, algo={"options": {"residual": "exact"}}) for one in made]
    figure, notes = drawn("residual_mass", *made, *exact)
    assert set(lines(figure)) == {"gTop-k (paper's rule)", "gTop-k (exact)"}
    figure, notes = drawn("residual_mass", *made, group("resnet20", "gtopk", density=0.01, recorded=[records[0]]))
    assert "gTop-k, ρ = 0.01 (paper's rule)" in lines(figure)
    assert "density 0.001, float32; ResNet-20 on" in notes[0] and "density 0.01, float32" in notes[0]
    figure, notes = drawn("residual_mass", *made, *(changed(one, precision="bfloat16") for one in made))
    assert {"gTop-k, float32 (paper's rule)", "gTop-k, bfloat16 (paper's rule)"} == set(lines(figure))
    assert "density 0.001, float32; " in notes[0] and "density 0.001, bfloat16" in notes[0]


def test_bytes_at_two_densities_are_two_lines_with_their_bounds() -> None:
    few, many = (made_up_results.record(2) | {"k": k} for k in (2, 5))
    made = [group("resnet20", "gtopk", nodes=2, recorded=[few]), group("resnet20", "gtopk", nodes=2, recorded=[many])]
    figure, notes = drawn("bytes_per_step", *made)
    assert {"gTop-k, k = 2", "gTop-k, k = 5"} <= set(lines(figure))
    assert "k = 2;" in notes[0] and "k = 5;" in notes[0]


def test_momentum_names_a_second_density_and_gives_a_batch_its_panel() -> None:
    made = [group("resnet20", "gtopk"), group("resnet20", "gtopk", density=0.002), group("resnet20", "gtopk", batch=64)]
    figure, notes = drawn("momentum", *made)
    names = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes[1:3]]
    assert sorted(map(sorted, names)) == [["gTop-k"], ["gTop-k, ρ = 0.001", "gTop-k, ρ = 0.002"]]
    assert any("density 0.001 and 0.002, batch 32 per node" in note for note in notes)


def test_momentum_tells_runs_without_density_warm_up_from_the_others() -> None:
    made = [group("resnet20", "gtopk"), changed(group("resnet20", "gtopk"), density_warmup=[])]
    figure, _ = drawn("momentum", *made)
    names = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert sorted(names) == ["gTop-k", "gTop-k without density warm-up"]


def test_each_kind_of_runs_on_many_nodes_ends_by_itself() -> None:
    whole = [changed(group("resnet20", a, nodes=32), scale_schedule=False) for a in ("dense", "gtopk")]
    short = changed(group("resnet20", "gtopk", nodes=16), scale_schedule=False, epochs=2)
    short["curve"] = short["curve"][:2]
    for groups in ((*whole, short), (short, *whole)):
        rows = many_nodes.table(Results(PAPER, {"many_nodes": {"groups": groups}}))
        ends = [(16, "first 2 of 141 epochs"), *2 * [(32, "first 5 of 141 epochs")]]
        assert sorted((row["nodes"], row["schedule"]) for row in rows) == ends


def test_gains_over_bandwidth_are_over_dense_on_as_many_nodes() -> None:
    made = [on_a_v100("resnet50", algo, 10) for algo in ("dense", "gtopk")]
    few = on_a_v100("resnet50", "dense", 10)
    few["settings"]["nodes"], few["runs"] = 4, ["on four"]
    few["iteration_time"][-1] |= {"communicate_s": 0.001}

    def gain(*groups: dict[str, Any]) -> float:
        rows = tradeoff_dilated.table(Results(PAPER, {"tradeoff_dilated": {"groups": groups}}))
        return float(next(row["gain"] for row in rows if row["algo"] == "gtopk" and row["source"] != "published"))

    assert gain(*made, few) == gain(*made)
    _, notes = drawn("tradeoff_dilated", *made, few)
    assert notes[0].startswith("P = 4 and 16 nodes")


@pytest.mark.parametrize(
    "other",
    [{"precision": "bfloat16"}, {"density": 0.01}, {"algo": {"options": {"route": "butterfly"}}}],
    ids=str,
)
def test_a_speed_up_is_of_the_papers_settings_on_a_gpu_and_in_the_lab(other: dict[str, Any]) -> None:
    def factors(*more: dict[str, Any]) -> list[Row]:
        on_gpu = [measured(group("resnet20", a, nodes=32, batch=128), "off") | {"machine": GPU} for a in algos]
        in_lab = [dilated(group("resnet20", a, nodes=32, batch=128), "off") for a in algos]
        for one in more:
            on_gpu.append(measured(one, "off") | {"machine": GPU})
            in_lab.append(dilated(one, "off"))
            for of in (on_gpu, in_lab):
                of[-1]["iteration_time"] = [t | {"communicate_s": 1e-4, "repeats": 9} for t in of[-1]["iteration_time"]]
        groups = {"throughput": {"groups": on_gpu}, "dilated": {"groups": in_lab}}
        return speedups.table(Results(PAPER, groups))

    algos = ("dense", "gtopk")
    fast = changed(group("resnet20", "gtopk", nodes=32, batch=128), **other)
    assert factors(fast) == factors()


def test_simulated_seconds_of_other_networks_and_densities_are_not_the_papers() -> None:
    data = made_up_results.everything()
    before = _times.simulated(data)
    summary = data.summaries["simulate"]
    wire = {"network": "ethernet10g", "communicate_s": 1e-6}
    summary["rows"] += [row | wire for row in summary["rows"]]
    summary["rows"] += [row | {"density": 0.01, "k": 99, "communicate_s": 1e-6} for row in summary["rows"]]
    assert _times.simulated(data) == before
    overlapped = summary["rows"][0] | {"algo": "ddp", "iteration_s": 0.11}
    summary["rows"] = [overlapped]
    (row,) = _times.simulated(data)
    assert row["batch_per_node"] / row["samples_per_s"] == pytest.approx(0.11)


def test_a_stated_node_and_an_untold_repeat_are_no_failure() -> None:
    stated = [dilated(group("resnet20", a), "off") for a in ("dense", "gtopk")]
    for one, seconds in zip(stated, (0.2, 0.1), strict=True):
        one["settings"]["compute_s"] = seconds
        one["iteration_time"] = [time | {"node": "stated"} for time in one["iteration_time"]]
    trained = dilated(group("resnet20", "topk"), "off")
    del trained["iteration_time"][-1]["repeats"]
    results = Results(PAPER, {"dilated": {"groups": [*stated, trained]}, "strategies": {"groups": [trained]}})
    rows = dilated_iterations.table(results)
    assert [(row["algorithm"], row["over dense"]) for row in rows] == [("dense", 1.0), ("gTop-k", None)]
    for item in figures.load(["dilated_predictions", "claims", "strategies", "speedups"]):
        item.table(results)
    once = on_a_v100("resnet50", "dense", 10)
    del once["iteration_time"][-1]["repeats"]
    assert tradeoff_dilated.table(Results(PAPER, {"tradeoff_dilated": {"groups": [once]}})) == []


def test_strategies_draws_any_stages_and_overlap() -> None:
    made = [dilated(group("resnet20", a), overlap) for a, overlap in (("dense", "off"), ("dense", "on"))]
    made.append(in_stages(dilated(group("resnet20", "dense", nodes=6), "off"), 3))
    (item,) = figures.load(["strategies"])
    rows = item.table(Results(PAPER, {"strategies": {"groups": made}}))
    assert [row["strategy"] for row in rows] == ["dense", "dense, overlapped", "pipeline × dense"]
    _, notes = figures.drawn(item, rows)
    assert any("measured on 4 and 6 nodes" in note for note in notes)
    figures.drawn(
        item, item.table(Results(PAPER, {"strategies": {"groups": [dilated(group("resnet20", "gtopk"), "off")]}}))
    )
