"""Which target the figure takes, what is drawn at each P, and what is said of curves that miss it."""

import dataclasses
from typing import Any

import committed_results
import made_up_groups
import pytest

from repro.config.compose import compose
from repro.figures import time_to_accuracy
from repro.report import summaries, time_to_target
from repro.report.group import Group
from repro.report.summaries import Results
from repro.timing import other_settings, to_target


def results(*groups: dict[str, Any]) -> Results:
    return Results(summaries.paper(), {"convergence": {"groups": list(groups)}})


def made(algo: str, best: float, nodes: int = 4, **settings: Any) -> dict[str, Any]:
    """A run of 10 epochs in which the accuracy rises evenly to `best`."""
    group = made_up_groups.group("resnet20", algo, nodes=nodes)
    rows = [{"epoch": n, "step": 100 * n, "test_accuracy": best * n / 10, "test_accuracy_std": None} for n in range(11)]
    whole = {"epochs": 141, "scale_schedule": False}
    return group | {"curve": rows[1:], "settings": group["settings"] | whole | settings}


def test_the_target_is_the_highest_that_two_reach() -> None:
    groups = [Group(**made(algo, best)) for algo, best in (("dense", 0.93), ("topk", 0.91), ("gtopk", 0.86))]
    assert time_to_accuracy.highest(groups) == 0.9
    assert time_to_accuracy.highest(groups[::2]) == 0.85
    assert time_to_accuracy.highest(groups[:1]) == 0.9
    assert time_to_accuracy.highest([Group(**made("dense", 0.3))]) is None  # too near to chance
    assert time_to_accuracy.highest([]) is None


def test_what_misses_the_target_has_its_best_and_no_minutes() -> None:
    rows = time_to_accuracy.table(results(made("dense", 0.93), made("topk", 0.91), made("gtopk", 0.86)))
    missed = [row for row in rows if row["minutes"] is None]
    assert [(row["algo"], row["nodes"], row["best"]) for row in missed] == [("gtopk", 4, 0.86), ("gtopk", 32, 0.86)]
    assert len(rows) == 2 + 2 * 2 * len(time_to_accuracy.BITS_PER_S)
    figure = time_to_accuracy.draw(rows)
    assert (
        "ResNet-20, P = 4 and 32: 90 % on the schedule of 141 epochs, CIFAR-10 (JPEG folder), float32, in curves of "
        "P = 4: dense: epoch 10"
    ) in " ".join(figure.notes)
    assert "gTop-k (ρ = 0.001): not in 10 epochs, best 86.0 %" in " ".join(figure.notes)
    assert {line.get_label() for panel in figure.axes for line in panel.get_lines()} == {"dense", "Top-k"}


def test_minutes_are_steps_times_the_iteration_and_curves_with_the_same_p_come_first() -> None:
    at_4 = [made("dense", 0.93), made("topk", 0.91)]
    at_32 = [made("dense", 1.0, nodes=32), made("topk", 0.86, nodes=32)]
    rows = time_to_accuracy.table(results(*at_4, *at_32))
    assert {(row["algo"], row["nodes"], row["curve_nodes"]) for row in rows} == {
        ("dense", 4, 4), ("dense", 32, 32), ("topk", 4, 4), ("topk", 32, 32)
    }  # fmt: skip
    fast = {(row["algo"], row["nodes"]): row for row in rows if row["bits_per_s"] == 1e10}
    for (algo, nodes), steps in {("dense", 4): 1000, ("dense", 32): 900, ("topk", 4): 1000, ("topk", 32): 1000}.items():
        row = fast[algo, nodes]
        assert row["minutes"] == pytest.approx(steps * (0.1 + 0.01 + row["communicate_s"]) / 60, rel=1e-3)
    assert fast["topk", 4]["communicate_s"] == pytest.approx(2e-3, rel=0.02)  # log2 P latencies, and few bytes


def test_a_density_warmup_sends_more_in_its_own_steps() -> None:
    """All steps were priced at the density after it."""
    warm, cold = (made("topk", 0.91, density_warmup=densities) for densities in ([0.004], []))
    warm_row, cold_row = (
        time_to_accuracy._minutes({"nodes": 4}, time_to_target.reach([Group(**own)], 0.9), 1_000_000, (0.1, 0.01))[0]
        for own in (warm, cold)
    )
    per_pair = 3 * 8 * 8 / 1e6  # seconds at 1 Mbps, the first column: three blocks of 8-byte pairs
    more = 100 * per_pair * 3 * warm["per_step"]["k"]
    assert 60 * (warm_row["minutes"] - cold_row["minutes"]) == pytest.approx(more, rel=1e-6)
    assert warm_row["communicate_s"] == cold_row["communicate_s"], "that of most steps"


@pytest.mark.parametrize("alone", ["dense", "topk"])
def test_curves_of_unlike_numbers_of_nodes_share_no_panel(alone: str) -> None:
    """Dense at P = 32, trained there, stood beside Top-k's curve of P = 4."""
    rows = time_to_accuracy.table(results(made("dense", 0.93), made("topk", 0.91), made(alone, 0.95, nodes=32)))
    assert {(row["algo"], row["nodes"], row["curve_nodes"]) for row in rows} == {
        ("dense", 4, 4), ("dense", 32, 4), ("topk", 4, 4), ("topk", 32, 4)
    }  # fmt: skip
    fast = {row["algo"]: row for row in rows if (row["bits_per_s"], row["nodes"]) == (1e10, 32)}
    for row in fast.values():
        assert row["minutes"] == pytest.approx(125 * (0.1 + 0.01 + row["communicate_s"]) / 60, rel=1e-3)


def test_each_p_has_its_own_target() -> None:
    """The target of P = 4 left the panel of P = 32 empty where the curves of 32 missed it."""
    at_4, at_32 = (
        [made(algo, best, nodes=nodes) for algo in ("dense", "topk")] for nodes, best in ((4, 0.93), (32, 0.71))
    )
    rows = time_to_accuracy.table(results(*at_4, *at_32))
    assert {(row["nodes"], row["target"]) for row in rows} == {(4, 0.9), (32, 0.7)}
    assert all(row["minutes"] is not None for row in rows)
    figure = time_to_accuracy.draw(rows)
    assert [panel.get_ylabel() for panel in figure.axes] == ["minutes to 90 %", "minutes to 70 %"]
    notes = " ".join(figure.notes)
    assert "P = 4: 90 % on the schedule of" in notes and "P = 32: 70 % on the schedule of" in notes


def test_a_panel_without_a_target_is_left_blank() -> None:
    low = [made(algo, 0.3, nodes=32) for algo in ("dense", "topk")]
    rows = time_to_accuracy.table(results(made("dense", 0.93), made("topk", 0.91), *low))
    assert {row["nodes"] for row in rows} == {4}
    assert [panel.axison for panel in time_to_accuracy.draw(rows).axes] == [True, False]


def test_curves_of_a_compressed_schedule_stand_apart() -> None:
    short = made("gtopk", 0.99, scale_schedule=True, epochs=15)
    rows = time_to_accuracy.table(results(made("dense", 0.93), made("topk", 0.91), short))
    assert {row["algo"] for row in rows} == {"dense", "topk"}


def test_unlike_machines_make_no_algorithm_faster() -> None:
    """A processor that needs half the time for one of the runs says nothing about the run's algorithm."""
    groups = [made(algo, 0.93) for algo in ("dense", "topk", "gtopk")]
    times = [[{**row, "compute_s": seconds} for row in groups[0]["iteration_time"]] for seconds in (0.1, 0.2, 0.11)]
    machines = [made_up_groups.MACHINE | {"cpu": f"processor {place}"} for place in range(3)]
    unlike = [
        group | {"machine": machine, "iteration_time": own}
        for group, machine, own in zip(groups, machines, times, strict=True)
    ]
    rows = time_to_accuracy.table(results(*unlike))
    assert len({row["algo"] for row in rows if row["minutes"] is not None}) == 1
    (said,) = {row["epochs"] for row in rows if row["algo"] == "topk"}
    assert said == "epoch 10, n = 1, not timed on the machine of the others"
    shorter = [
        made(group["settings"]["algo"]["name"], 0.5, epochs=3) | {"machine": machines[2], "iteration_time": times[2]}
        for group in groups
    ]
    both = time_to_accuracy.table(results(*unlike, *shorter))
    assert {(row["algo"], row["compute_s"]) for row in both} == {(algo, 0.11) for algo in ("dense", "topk", "gtopk")}
    assert all(row["minutes"] for row in both)


def test_a_variant_of_an_algorithm_does_not_stand_for_it() -> None:
    plain = [made("dense", 0.93), made("topk", 0.91), made("gtopk", 0.91)]
    sooner = made("gtopk", 1.0)
    sooner["settings"]["algo"] |= {"clip": 1.0}
    drawn = [row for row in time_to_accuracy.table(results(*plain, sooner)) if row["settings"] is None]
    assert drawn == time_to_accuracy.table(results(*plain))


def test_runs_with_other_settings_that_reached_the_target_are_drawn_or_named() -> None:
    """The one sparse run that beat dense on 32 nodes was left out, and nothing said so; later it was named alone."""
    plain = [made(algo, best, nodes=nodes) for algo, best in (("dense", 0.93), ("topk", 0.91)) for nodes in (4, 32)]
    larger, slower, worse = (made("gtopk", best, nodes=32) for best in (1.0, 0.95, 0.8))
    larger["settings"]["algo"] |= {"gain": 40.0, "wire": "gaps-bf16"}
    slower["settings"] |= {"lr": 0.2, "density": 0.05, "density_warmup": [0.1]}
    worse["settings"]["algo"] |= {"gain": 2.0}
    rows = time_to_accuracy.table(results(*plain, larger, slower, worse))
    named = [row for row in rows if row["settings"] is not None]
    assert {(row["nodes"], row["minutes"] > 0, row["source"]) for row in named} == {
        (32, True, "trained, then modelled")
    }
    figure = time_to_accuracy.draw(rows)
    first, second = figure.notes[1:]
    sooner, later = (
        "gTop-k (ρ = 0.001, gain 40, wire gaps-bf16)",
        "gTop-k (ρ = 0.05, density warm-up [0.1], learning rate 0.2, not 0.1)",
    )
    assert "gTop-k" not in first and f"{sooner}: epoch 9, n = 1; {later}: epoch 10, n = 1." in second
    assert [line.get_label() for line in figure.axes[1].get_lines()] == ["dense", "Top-k", sooner, later]
    assert {line.get_linestyle() for line in figure.axes[1].get_lines()[2:]} == {":"}


@pytest.mark.parametrize(("algo", "route"), [("gtopk", "butterfly"), ("gtopk_butterfly", "tree")])
def test_messages_are_those_of_the_route_that_a_run_took(algo: str, route: str) -> None:
    """They went by the algorithm's name: gTop-k by the butterfly had the tree's two messages a level."""
    plain, other = [made("dense", 0.93), made("topk", 0.91)], made(algo, 0.95)
    other["settings"]["algo"]["options"] = other["settings"]["algo"]["options"] | {"route": route}
    rows = time_to_accuracy.table(results(*plain, other))
    (fast,) = [row for row in rows if (row["algo"], row["nodes"], row["bits_per_s"]) == (algo, 4, 1e10)]
    latencies = {"tree": 4, "butterfly": 2}[route]
    assert fast["communicate_s"] == pytest.approx(latencies * 1e-3, rel=0.02)


def test_runs_with_other_settings_that_were_timed_elsewhere_or_on_other_data_are_named_alone() -> None:
    plain = [made(algo, best, nodes=32) for algo, best in (("dense", 0.93), ("topk", 0.91))]
    kept, other = made("gtopk", 1.0, nodes=32, density=0.05), made("gtopk", 0.95, nodes=32, lr=0.2)
    kept["settings"]["algo"] |= {"gain": 40.0}
    kept["machine"] = other["machine"] = made_up_groups.MACHINE | {"cpu": "another"}
    rows = time_to_accuracy.table(results(*plain, kept, other))
    assert {(row["nodes"], row["minutes"], row["source"]) for row in rows if row["settings"]} == {(32, None, "trained")}
    assert (
        time_to_accuracy.draw(rows)
        .notes[-1]
        .endswith(
            " Not drawn: runs with other settings reached it too: gTop-k (ρ = 0.05, gain 40): epoch 9, n = 1; "
            "gTop-k (ρ = 0.001, learning rate 0.2, not 0.1): epoch 10, n = 1."
        )
    )
    again = [group | {"machine": made_up_groups.MACHINE, "curve": []} for group in (*plain, kept)]
    timed = Results(
        summaries.paper(), {"convergence": {"groups": [*plain, kept, other]}, "iteration_times": {"groups": again}}
    )
    drawn = {row["settings"] for row in time_to_accuracy.table(timed) if row["minutes"]}
    assert drawn == {None, "gain 40"}  # seconds are those of the experiment that times; nothing has timed `other` there
    kept["data"] = other["data"] = "cifar10"
    said = time_to_accuracy.draw(time_to_accuracy.table(dataclasses.replace(timed))).notes[-1]
    assert "reached it too (CIFAR-10, float32, in curves of P = 32): gTop-k (ρ = 0.05, gain 40)" in said


def test_the_planner_names_the_same_runs_with_other_settings() -> None:
    rows = [row for row in time_to_accuracy.table(committed_results.load()) if row["settings"] is not None]
    algos = "gtopk_corrected", "dense"
    assert {(row["nodes"], row["algo"], row["minutes"] is None) for row in rows} == {
        (32, algo, False) for algo in algos
    }
    ranked = compose(["model=resnet20", "nodes=32", "algo=dense,topk,gtopk,gtopk_corrected", "density=0.001"])
    _, *lines = other_settings.said(rows[0]["target"], ranked, to_target.trained())
    ends = {f"({100 * row['best']:.1f} %; {row['epochs']})" for row in rows}
    assert len(lines) == 2 and {end for line in lines for end in ends if line.endswith(end)} == ends


def test_the_band_of_one_seed_is_within_its_run() -> None:
    noisy = made("dense", 0.93)
    for row, accuracy in zip(noisy["curve"], (0.1, 0.91, 0.5, 0.91, 0.91, 0.5, 0.5, 0.91, 0.91, 0.93), strict=True):
        row["test_accuracy"] = accuracy
    rows = time_to_accuracy.table(results(noisy, made("topk", 0.91)))
    (dense, topk) = (row for row in rows if row["nodes"] == 4 and row["bits_per_s"] == 1e10)
    assert dense["minutes_least"] == pytest.approx(dense["minutes"] * 2 / 4)
    assert dense["minutes_most"] == pytest.approx(dense["minutes"] * 8 / 4)
    assert topk["minutes_least"] == topk["minutes"] == topk["minutes_most"]
    figure = time_to_accuracy.draw(rows)
    heights = [{round(y, 6) for _, y in band.get_paths()[0].vertices} for band in figure.axes[0].collections]
    of_dense = {round(row[name], 6) for row in rows for name in ("minutes_least", "minutes_most") if row["nodes"] == 4
                and row["algo"] == "dense"}  # fmt: skip
    assert of_dense in heights
    notes = " ".join(figure.notes)
    assert "dense: epoch 4 (2 to 8 within one run), n = 1" in notes and time_to_target.WITHIN in notes


def test_curves_of_another_p_are_told_to_be_contradicted_where_they_are() -> None:
    row = {"settings": None, "algo": "gtopk", "nodes": 32}
    assumed = row | {"model": "vgg16", "curve_nodes": 4, "minutes": 11.0}
    missed = row | {"model": "resnet20", "curve_nodes": 32, "minutes": None}
    found = "; with ResNet-20 on 32 nodes gTop-k did not reach the target"
    assert time_to_accuracy._never_there([assumed, missed]) == found
    assert time_to_accuracy._never_there([assumed, missed | {"minutes": 5.0}]) == ""
    assert time_to_accuracy._never_there([assumed | {"algo": "topk"}, missed]) == ""
