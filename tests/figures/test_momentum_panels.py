"""Accuracies are compared among runs of one number of nodes, at the last epoch that all of them have."""

from typing import Any

import committed_results
import made_up_results
import pytest

from repro.figures import _legend, momentum
from repro.report.group import Group
from repro.report.momentum import AFTER, NONE
from repro.report.summaries import Results


def test_longer_runs_on_more_nodes_keep_their_own_epoch() -> None:
    short, long = (
        [made_up(of_32(algo), seed, epochs, nodes=nodes) for algo, seed in (("dense", 4), ("gtopk", 3))]
        for nodes, epochs in ((4, 2), (32, 5))
    )
    limits = [{"rule": rule, "density": rho, "limits": [rho]} for rule in momentum.RULES for rho in (0.01, 1.0)]
    summaries = {"momentum": {"groups": short + long}, "quadratic": {"rows": limits}}
    rows = momentum.table(Results({}, summaries, made_up_results.REFERENCE))
    assert [(row["nodes"], row["epoch"], row["algo"]) for row in rows if row["source"] == "trained"] == [
        (4, 2, "dense"),
        (4, 2, "gTop-k"),
        (32, 5, "dense"),
        (32, 5, "gTop-k"),
    ]
    panels = {axes.get_title(): axes.get_xlabel() for axes in momentum.draw(rows).axes}
    assert panels["P = 4, first 2 of 141 epochs"] == "test accuracy after 2 epochs (%)"
    assert panels["P = 32, first 5 of 141 epochs"] == "test accuracy in epochs 1–5 (%)", (
        "as the learning rate has not dropped"
    )


def test_a_network_without_a_learning_rate_of_its_own_has_it_said() -> None:
    """As one that was added, and whose YAML leaves it to the user."""
    added = made_up(of_32("gtopk"), 0, 5)
    added["settings"] |= {"model": {"name": "mynet", "options": {}}, "lr": 0.3, "momentum": 0.0}
    (row,) = momentum.table(Results({}, {"momentum": {"groups": [added]}}, []))
    assert "lr 0.3" in row["algo"]


def test_a_whole_run_is_one_more_seed_of_those_that_end_earlier() -> None:
    """Older summaries lack the keys that came later: their settings are the same for all that. Another batch is not."""
    short = of_32("gtopk")
    whole, other = made_up(short, seed=3, epochs=141), made_up(short, seed=4, epochs=15)
    del whole["settings"]["stages"], whole["settings"]["cuts"]
    halved = made_up(short, seed=5, epochs=141, batch_per_node=16)
    made = {"momentum": {"groups": [other]}, "convergence": {"groups": [whole, halved]}}
    (pooled,) = momentum.table(Results({}, made, made_up_results.REFERENCE))
    assert (pooled["n"], pooled["epoch"], pooled["schedule"]) == (2, 15, "first 15 of 141 epochs")
    assert pooled["test_accuracy"] == pytest.approx((0.313 + 0.413) / 2), "of epochs 11 to 15"
    assert pooled["test_accuracy_std"] == pytest.approx(0.1 / 2**0.5)


def test_whole_runs_of_the_experiment_are_compared_at_their_end_too() -> None:
    short, plain = of_32("gtopk"), {"momentum": 0.0, "lr": 1.0}
    groups = [made_up(short, 1, 15), made_up(short, 2, 15, **plain), made_up(short, 3, 141, **plain)]
    made = {"momentum": {"groups": groups}, "convergence": {"groups": [made_up(short, 6, 141)]}}
    rows = momentum.table(Results({}, made, made_up_results.REFERENCE))
    assert [(row["epoch"], row["schedule"], row["rule"], row["n"]) for row in rows] == [
        (15, "first 15 of 141 epochs", AFTER, 2),
        (15, "first 15 of 141 epochs", NONE, 2),
        (141, "141 epochs", AFTER, 1),
        (141, "141 epochs", NONE, 1),
    ]


def test_a_compressed_schedule_and_other_images_have_panels_of_their_own() -> None:
    """They had been drawn among the first 15 of 141 epochs, whose note was theirs too."""
    short = of_32("gtopk")
    compressed = made_up(short, 2, 15, scale_schedule=True)
    elsewhere = made_up(short, 3, 15) | {"data": "digits (8x8)", "fingerprint": "another"}
    groups = [made_up(short, 1, 15), compressed, elsewhere]
    limits = [{"rule": rule, "density": rho, "limits": [rho]} for rule in momentum.RULES for rho in (0.01, 1.0)]
    made = {"momentum": {"groups": groups}, "quadratic": {"rows": limits}}
    rows = momentum.table(Results({}, made, made_up_results.REFERENCE))
    assert [row["epoch"] for row in rows if row["source"] == "trained"] == [15, 15, 15]
    figure = momentum.draw(rows)
    titles = [axes.get_title() for axes in figure.axes if axes.axison]
    assert sorted(" ".join(title.split()) for title in titles) == [
        "P = 32, first 15 of 141 epochs, CIFAR-10 (JPEG folder)",
        "P = 32, first 15 of 141 epochs, digits (8x8)",
        "P = 32, schedule of 141 epochs compressed to 15",
        "limits of stability on a quadratic",
    ]
    note = " ".join(_legend.notes_of(figure))
    for data, length in (
        ("CIFAR-10 (JPEG folder)", "first 15 of 141 epochs"),
        ("CIFAR-10 (JPEG folder)", "schedule of 141 epochs compressed to 15"),
        ("digits (8x8)", "first 15 of 141 epochs"),
    ):
        assert f"{data}, density 0.001, batch 32 per node, float32, {length}, n = 1" in note


def of_32(algo: str) -> Group:
    """Returns the committed run of the paper's rule, whose settings are whole."""
    groups = [group for group in committed_results.load().groups("momentum") if (group.nodes, group.algo) == (32, algo)]
    papers = [group for group in groups if group.settings["algo"]["options"].get("residual", "paper") == "paper"]
    return next(group for group in papers if group.settings["momentum"] == 0.9)


def made_up(like: Group, seed: int, epochs: int, **settings: Any) -> dict[str, Any]:
    """Accuracy is seed / 10 and a point more with each ten epochs."""
    (row, *_) = like.curve
    curve = [row | {"epoch": n, "test_accuracy": seed / 10 + n / 1000} for n in range(1, epochs + 1)]
    changed = like.settings | {"epochs": epochs} | settings
    return vars(like) | {"settings": changed, "seeds": [seed], "curve": curve}
