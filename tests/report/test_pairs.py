"""Two runs are compared where they are alike, at the last epoch that both have."""

import dataclasses
from typing import Any

import pytest
from made_up_groups import group, run

from repro.report import pairs
from repro.report.group import Group


def test_seeds_are_paired_where_their_accuracies_are_kept() -> None:
    pair = pairs.of(run("gtopk", n_seeds=2), run("dense", n_seeds=2))
    assert pair and pair.seeds() == [0, 1] and pair.accuracies == pytest.approx((48.0, 50.0))
    found = pair.difference(None)
    assert (found.mean, found.n) == (pytest.approx(-2.0), 2) and "paired" in found.how
    assert pairs.accuracies(pair.ours, 5) == pytest.approx({0: 48 - 0.5 / 2**0.5, 1: 48 + 0.5 / 2**0.5}, abs=1e-3)


def test_old_summaries_of_several_seeds_are_not_paired() -> None:
    old = run("gtopk", n_seeds=2)
    old.seed_accuracies.clear()
    pair = pairs.of(old, run("dense", n_seeds=2))
    assert pair and pair.seeds() == []
    found = pair.difference(None)
    assert found.mean == pytest.approx(-2.0) and "2 and 2 seeds, not paired" in found.how


def test_a_short_run_meets_the_same_epoch_of_a_long_one() -> None:
    pair = pairs.of(run("gtopk", 5), run("dense", 3))
    assert pair and (pair.epoch, pair.schedule, pair.whole) == (3, "first 3 of 141 epochs", False)
    assert pair.difference(None).mean == pytest.approx(-2.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"nodes": 8},
        {"batch_per_node": 64},
        {"lr": 1.0},
        {"precision": "bfloat16"},
        {"scale_schedule": True},
        {"lr_warmup_epochs": 0},
        {"lr_warmup_from": "zero"},
        {"lr_drop_factor": 0.5},
        {"clip_grad": 0.1},
        {"hierarchical": True},
        {"on_nonfinite": "skip"},
        {"lr_drops": [70.0]},
        {"weight_decay": 0.0},
        {"weight_decay_of": "weights"},
        {"schedule_epochs": 200},
        {"steps": 5},
        {"model": {"name": "vgg16", "options": {}}},
    ],
)
def test_unlike_runs_are_not_compared(settings: dict[str, Any]) -> None:
    assert pairs.of(run("gtopk"), run("dense", **settings)) is None
    assert pairs.of(run("gtopk", **settings), run("dense", **settings)) is not None
    assert pairs.of(run("dense"), run("dense")) is None, "a run is not compared with itself"


def test_runs_on_other_images_are_not_compared_whatever_these_are_called() -> None:
    """A folder of JPEGs may hold others than it held; old summaries have no fingerprint, and the name alone decides."""
    jpeg, other, old = (dataclasses.replace(run("dense"), fingerprint=known) for known in ("1", "2", ""))
    renamed = dataclasses.replace(jpeg, data="cifar10 (a copy)")
    ours = dataclasses.replace(run("gtopk"), fingerprint="1")
    found = [pairs.of(ours, reference) is not None for reference in (jpeg, other, old, renamed)]
    assert found == [True, False, True, True]
    assert pairs.of(dataclasses.replace(ours, fingerprint=""), renamed) is None


def test_runs_compressed_to_unlike_epochs_are_not_compared() -> None:
    assert pairs.of(run("gtopk", 5, scale_schedule=True), run("dense", 3, scale_schedule=True)) is None


def test_the_best_pair_is_uncompressed_then_long_then_of_many_seeds() -> None:
    def best(*runs: Group) -> Group:
        found = pairs.best(runs, [run("dense", 5), run("dense", 5, scale_schedule=True), run("dense", 3)])
        assert found
        return found.ours

    compressed, short, long, many = (
        run("gtopk", 5, 2, scale_schedule=True), run("gtopk", 2), run("gtopk", 5), run("gtopk", 5, 2)
    )  # fmt: skip
    assert best(compressed, short) is short
    assert best(short, long) is long
    assert pairs.best([long, many], [run("dense", 5, 2)]).ours is many  # type: ignore[union-attr]
    assert pairs.best([], [long]) is None


def test_of_references_alike_the_one_of_the_same_seed_is_taken() -> None:
    ours, zero, one = run("gtopk", 5), run("dense", 5), run("dense", 5)
    ours.seeds[:] = one.seeds[:] = [1]
    for references in ([zero, one], [one, zero]):
        assert pairs.best([ours], references).reference is one  # type: ignore[union-attr]


def test_of_pairs_alike_that_of_the_original_images_is_taken() -> None:
    jpeg = [run("gtopk"), run("dense")]
    original = [dataclasses.replace(one, data="cifar10") for one in jpeg]
    for (ours, dense), (others, others_dense) in ((original, jpeg), (jpeg, original)):
        found = pairs.best([ours, others], [dense, others_dense])
        assert found and (found.ours, found.reference) == tuple(original)


def test_a_whole_schedule_is_whole() -> None:
    ours, dense = (Group(**group("resnet20", algo)) for algo in ("gtopk", "dense"))
    for one in (ours, dense):
        one.settings["epochs"] = 141
    pair = pairs.of(ours, dense)
    assert pair and pair.whole and pair.schedule == "141 epochs"


def test_the_longest_pair_counts_before_one_of_more_seeds() -> None:
    best = pairs.best([run("gtopk", 5), run("gtopk", 3, n_seeds=2)], [run("dense", 5), run("dense", 3, n_seeds=2)])
    assert best and best.epoch == 5
