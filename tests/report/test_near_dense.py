"""Which algorithms committed runs show to end below dense, and which runs say so."""

import dataclasses
import math
import statistics
from typing import Any

import committed_results
import made_up_groups
import made_up_results
import pytest
from told_in_paper import told

from repro.config import groups
from repro.config.compose import compose
from repro.report import intervals, near_dense, prefixes
from repro.report.group import rounded
from repro.report.near_dense import Ending
from repro.report.summaries import Results

DENSITY = 0.001


def ended(
    algo: str, accuracy: float, nodes: int = 4, epochs: int = 141, seed: int = 0, **settings: Any
) -> dict[str, Any]:
    """A run of the network's and the algorithm's own settings that has this accuracy, in percent, at every epoch."""
    group = made_up_groups.group("resnet20", algo, nodes=nodes, density=1.0 if algo in ("dense", "qsgd") else DENSITY)
    usual = {name: groups.algo_default(algo, "resnet20", name) for name in ("lr", "momentum", "density_warmup")}
    group["settings"] |= {"scale_schedule": False, "epochs": epochs} | usual
    about = groups.about(algo)
    group["settings"]["algo"] |= {"gain": about.get("gain", 1.0), "options": {}, "sparse": about["sparse"]}
    every = settings.pop("evaluate_every", 1)
    group["settings"]["algo"]["gain"] = settings.pop("gain", group["settings"]["algo"]["gain"])
    group["settings"] |= settings
    row = group["curve"][0]
    group["curve"] = [
        row | {"epoch": epoch, "step": 10 * epoch, "test_accuracy": accuracy / 100}
        for epoch in range(1, epochs + 1)
        if epoch % every == 0 or epoch == epochs
    ]
    return group | {"seeds": [seed], "runs": [f"{algo}-{nodes}-{epochs}-{seed}-{settings}"], "seed_accuracies": []}


def found(*runs: dict[str, Any], nodes: int = 4) -> dict[str, Ending]:
    return near_dense.endings(Results({}, {"one": {"groups": runs}}, made_up_results.REFERENCE), nodes, DENSITY)


def test_a_point_below_dense_is_near_and_no_more() -> None:
    """One seed counts: it had to be 3.1 points below to be left out, and PowerSGD, 2.2 below, was fastest on a map."""
    ends = {below: found(ended("dense", 88), ended("gtopk", 88 - below))["gtopk"] for below in (-3, 0.5, 1, 1.1, 20)}
    assert [end.near for end in ends.values()] == [True, True, True, False, False]
    assert ends[1.1].points == pytest.approx(-1.1)


def test_a_sparse_algorithm_that_once_sent_all_is_not_near_at_another_density() -> None:
    all_sent = ended("topk", 88, density=1.0, density_warmup=[])
    all_sent["settings"]["algo"]["sparse"] = True
    assert "topk" not in found(ended("dense", 88), all_sent)
    assert not found(ended("dense", 88), ended("topk", 50), all_sent)["topk"].near


def test_a_density_is_compared_as_far_as_a_summarys_digits_go() -> None:
    """A run at 1 / 512 was of no density that anyone can type."""
    runs = [ended("dense", 88), ended("gtopk", 60, density=rounded(1 / 512))]
    results = Results({}, {"one": {"groups": runs}}, made_up_results.REFERENCE)
    (config,) = compose(["model=resnet20", "nodes=4", "algo=gtopk", f"density={1 / 512}"])
    shown = Ending(pytest.approx(-28), False)
    assert near_dense.endings(results, 4, 1 / 512)["gtopk"] == shown
    assert near_dense.ending(results, 4, config.algo, 1 / 512) == shown
    assert near_dense.ending(results, 4, config.algo, 0.00195) is None


def test_seeds_count_by_their_mean() -> None:
    runs = [
        ended(algo, accuracy, seed=seed)
        for seed, own in enumerate((88.5, 85.7))
        for algo, accuracy in (("dense", 88), ("gtopk", own), ("topk", own - 0.3))
    ]
    assert found(*runs) == {"gtopk": (pytest.approx(-0.9), True), "topk": (pytest.approx(-1.2), False)}


def test_the_longest_run_of_the_schedule_as_it_is_written_counts() -> None:
    short = {"epochs": 5, "scale_schedule": True}
    dense = [ended("dense", 88), ended("dense", 70, **short)]
    assert found(*dense, ended("qsgd", 70, **short), ended("qsgd", 50, epochs=15))["qsgd"].points == pytest.approx(-38)
    assert found(*dense, ended("qsgd", 70, **short))["qsgd"].points == pytest.approx(0)
    assert found(*dense, ended("qsgd", 70, **short), ended("qsgd", 86))["qsgd"].points == pytest.approx(-2)


def test_a_compressed_schedule_says_nothing_of_a_sparse_algorithm() -> None:
    short = {"epochs": 5, "scale_schedule": True}
    assert "gtopk" not in found(ended("dense", 70, **short), ended("gtopk", 70, **short))


def test_of_sparse_ones_the_most_nodes_up_to_those_asked_for_count() -> None:
    runs = [
        ended(algo, accuracy, nodes)
        for nodes, own in ((4, 87), (32, 60))
        for algo, accuracy in (("dense", 87), ("gtopk", own))
    ]
    runs.append(ended("topk", 87, 4))
    near = {nodes: {algo: end.near for algo, end in found(*runs, nodes=nodes).items()} for nodes in (2, 4, 16, 32, 128)}
    assert near[2] == near[4] == near[16] == {"gtopk": True, "topk": True}
    assert near[32] == near[128] == {"gtopk": False}, "Top-k was not trained on as many"


def test_a_curve_that_was_evaluated_seldom_hides_no_shorter_one() -> None:
    """Before the first drop means of five epochs are compared, which it has not."""
    dense, seldom = ended("dense", 80, epochs=60), ended("gtopk", 50, epochs=60, evaluate_every=4)
    assert "gtopk" not in found(dense, seldom)
    assert found(dense, seldom, ended("gtopk", 79, epochs=40, seed=1))["gtopk"].points == pytest.approx(-1)


def test_a_rate_ten_times_as_high_is_the_gain_that_an_algorithm_has() -> None:
    plain = {"lr": 1.0, "gain": 1.0}
    assert groups.about("gtopk_exact")["gain"] == 10
    assert found(ended("dense", 88), ended("gtopk_exact", 88, **plain))["gtopk_exact"].near
    assert "gtopk_exact" not in found(ended("dense", 88), ended("gtopk_exact", 88, **plain | {"lr": 2.0}))


def test_a_gain_wire_format_and_density_of_its_own_is_judged_by_runs_that_have_them() -> None:
    settings = {"nodes": 32, "density": 0.032, "density_warmup": []}
    kept, published, less = (
        ended("gtopk_corrected", accuracy, gain=gain, **settings)
        for accuracy, gain in ((87.5, 40.0), (60, 10.0), (70, 40.0))
    )
    kept["settings"]["algo"]["wire"] = "gaps-bf16"
    runs = [ended("dense", 88, nodes=32), kept, published, less]
    results = Results({}, {"one": {"groups": runs}}, made_up_results.REFERENCE)
    (config,) = compose(["algo=gtopk_corrected", "algo.gain=40", "algo.wire=gaps-bf16", "density=0.032"])
    assert near_dense.ending(results, 16, config.algo, config.density) is None, "not trained on as few"
    for nodes in (32, 128):
        end = near_dense.ending(results, nodes, config.algo, config.density)
        assert end is not None and end.points == pytest.approx(-0.5) and end.near
    assert near_dense.ending(results, 32, config.algo, 0.016) is None
    plain = dataclasses.replace(config.algo, wire="pairs")
    assert near_dense.ending(results, 32, plain, 0.032) == Ending(pytest.approx(-18), False)


def test_the_longest_runs_are_those_of_the_figures_nodes() -> None:
    runs = [ended(algo, 90.0, nodes, epochs) for algo in ("dense", "gtopk") for nodes, epochs in ((4, 50), (32, 141))]
    beside = near_dense.longest(Results({}, {"one": {"groups": runs}}, made_up_results.REFERENCE), "gtopk", DENSITY)
    assert beside and (beside.group.nodes, beside.group.epochs) == (4, 50)


def test_who_is_left_out_is_told_on_the_planners_page() -> None:
    ends = near_dense.endings(committed_results.load(), 4, DENSITY)
    for names, text in (
        (
            ("spardl", "oktopk"),
            "SparDL and Ok-Topk, which are left out at N and N points below, might be near",
        ),
        (
            ("powersgd", "gtopk_parameter_server", "demo", "randomk"),
            "PowerSGD, gTop-k at a parameter server, DeMo and random-k, N, N, N and N below, would not",
        ),
    ):
        assert told(text) == pytest.approx([-ends[name].points for name in names], abs=0.051)
    assert {name for name, end in ends.items() if not end.near} == {
        "spardl", "powersgd", "gtopk_parameter_server", "oktopk", "demo", "randomk",
    }  # fmt: skip


def test_how_far_single_runs_lie_apart_is_told_where_they_are_compared() -> None:
    """By the seeds of ResNet-20's repeats: the half of the 90 % interval of a difference of two runs."""
    results = committed_results.load()
    pair = near_dense.longest(results, "oktopk", DENSITY)
    assert pair is not None and (pair.epoch, pair.epochs) == (15, 5)
    wanted = {"nodes": pair.group.nodes, "batch_per_node": pair.group.settings["batch_per_node"], "accumulate": 1}
    alike = [
        group
        for _, group in results.all_groups()  # on any P
        if prefixes.kind(dataclasses.replace(group, settings=group.settings | wanted)) == prefixes.kind(pair.group)
    ]
    each = [list(one.accuracies.values()) for one in prefixes.at_epoch(alike, pair.epoch, pair.epochs)]
    repeated = [seeds for seeds in each if len(seeds) > 1]
    degrees = sum(len(seeds) - 1 for seeds in repeated)
    variance = sum((len(seeds) - 1) * statistics.variance(seeds) for seeds in repeated) / degrees
    half = intervals.t95(degrees) * math.sqrt(2 * variance)
    assert told("after N epochs, differences below N points decide nothing") == pytest.approx([15, half], abs=0.051)
    assert told("a difference of two single runs decides nothing below N points there") == pytest.approx(
        [half], abs=0.051
    )
