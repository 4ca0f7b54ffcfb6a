"""Summaries of seeds that were taken apart, pooled: on made-up groups; test_summaries.py has real runs."""

import pytest
from made_up_groups import group

from repro.report import curves, pool_seeds, repeat
from repro.report.group import Group, rounded


def test_an_iteration_is_that_of_the_seed_in_the_middle() -> None:
    def line(source: str, seconds: float) -> dict:
        parts = {"compute_s": 10 - seconds, "compress_s": 0.0, "communicate_s": 3 * seconds}
        return {"kind": "iteration_time", "source": source, "network": "ethernet1g", "nodes": 4, **parts}

    reported = [[line("modelled", x), line("measured", x / 2)] for x in (1.0, 5.0, 2.0)]
    found = curves.middle(reported)
    assert [(row["source"], row["compute_s"]) for row in found] == [("modelled", 8.0), ("measured", 9.0)]
    assert curves.middle(reported[:2])[0]["compute_s"] == 9.0
    assert [row["source"] for row in curves.middle([*reported, [line("measured", 3.0)]])] == ["measured"]
    assert "kind" not in found[0] and found[0]["nodes"] == 4


def test_pooled_mean_and_deviation() -> None:
    def row(values: list[float]) -> dict:
        mean, std = curves.mean_std(values)
        return {
            f"{name}{end}": v for name in (*curves.LOSSES, "test_accuracy") for end, v in (("", mean), ("_std", std))
        }

    values = [0.3, 0.9, 0.1, 0.7, 0.2]
    for cut in (1, 2, 4):
        assert pool_seeds._row(row(values[:cut]), row(values[cut:]), cut, 5 - cut) == pytest.approx(row(values))


def test_pooled_seeds_keep_the_epochs_that_both_summaries_have() -> None:
    long = group("resnet20", "gtopk", n_seeds=2)
    short = group("resnet20", "gtopk") | {"seeds": [7], "runs": ["seven"]}
    short["curve"] = short["curve"][:3]
    for pooled in (pool_seeds.of_both(long, short), pool_seeds.of_both(short, long)):
        assert pooled["seeds"] == [0, 1, 7] and [row["epoch"] for row in pooled["curve"]] == [1, 2, 3]
        mine = rounded([row["test_accuracy"] for row in short["curve"]])
        assert pooled["seed_accuracies"] == [*(values[:3] for values in long["seed_accuracies"]), mine]


def test_runs_collected_without_their_seconds_leave_those_that_are_there() -> None:
    """`--no-times` emptied them, for all seeds of the setting."""
    timed, plain = group("resnet20", "gtopk"), group("resnet20", "gtopk") | {"seeds": [7], "runs": ["seven"]}
    plain |= {"iteration_time": [], "machine": plain["machine"] | {"cpu": "Another"}}
    for pooled in (pool_seeds.of_both(timed, plain), pool_seeds.of_both(plain, timed)):
        assert pooled["iteration_time"] == timed["iteration_time"] and pooled["machine"] == timed["machine"]
        assert pooled["seeds"] == [0, 7] and pooled["machine_seed"] == 0
    later = timed | {"seeds": [8], "runs": ["eight"]}
    pooled = pool_seeds.of_both(plain, later)
    assert (pooled["seeds"], pooled["machine_seed"]) == ([7, 8], 8)
    assert pool_seeds.of_both(pooled, timed)["machine_seed"] == 8, "whose machine it still is"
    said = repeat._said("default", Group(**pooled))
    assert "(float32; seed 8 begun on " in said


def test_seeds_that_were_evaluated_less_often_take_no_evaluations_from_the_others() -> None:
    """A seed of `evaluate_every=2` cut the curves of those that were there to its own epochs."""
    there, seldom = group("resnet20", "gtopk", n_seeds=2), group("resnet20", "gtopk") | {"seeds": [7], "runs": ["7"]}
    seldom["curve"] = seldom["curve"][1::2]
    pooled = pool_seeds.pool({"groups": [there]}, {"groups": [seldom]}, pytest.fail)["groups"]
    assert sorted(one["seeds"] for one in pooled) == [[0, 1], [7]] and there in pooled
    again = pool_seeds.pool({"groups": pooled}, {"groups": [seldom | {"seeds": [8], "runs": ["8"]}]}, pytest.fail)
    assert sorted(one["seeds"] for one in again["groups"]) == [[0, 1], [7, 8]]
    every = seldom | {"curve": there["curve"]}
    (all_of_them,) = pool_seeds.pool({"groups": pooled}, {"groups": [every]}, pytest.fail)["groups"]
    assert all_of_them["seeds"] == [0, 1, 7] and len(all_of_them["curve"]) == 5


def test_the_middle_iteration_counts_how_many_runs_each_summary_stands_for() -> None:
    there, new = group("resnet20", "gtopk"), group("resnet20", "gtopk", n_seeds=3)
    new |= {"seeds": [7, 8, 9], "runs": ["7", "8", "9"]}
    new["iteration_time"] = [new["iteration_time"][0] | {"compute_s": 0.2}]
    pooled = pool_seeds.of_both(there, new)
    assert (pooled["timed_runs"], pooled["iteration_time"][0]["compute_s"]) == (4, 0.2)


def test_a_pooled_curve_is_the_mean_of_all_seeds() -> None:
    two, one = group("resnet20", "gtopk", n_seeds=2), group("resnet20", "gtopk") | {"seeds": [7], "runs": ["seven"]}
    one["curve"] = [row | {"test_accuracy": row["test_accuracy"] + 0.03} for row in one["curve"]]
    for pooled in (pool_seeds.of_both(two, one), pool_seeds.of_both(one, two)):
        means = [sum(seeds) / 3 for seeds in zip(*pooled["seed_accuracies"], strict=True)]
        assert [row["test_accuracy"] for row in pooled["curve"]] == pytest.approx(means, rel=1e-5)


def test_where_one_of_two_has_no_value_both_have_none() -> None:
    there, gone = ({"test_loss": loss, "test_loss_std": None} for loss in (2.0, None))
    for pair in ((there, gone), (gone, there)):
        assert pool_seeds._row(*pair, 1, 1) == {"test_loss": None, "test_loss_std": None}
