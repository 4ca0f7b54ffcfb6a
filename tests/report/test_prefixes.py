"""A whole run belongs to each experiment that has its settings, whichever trained it."""

import dataclasses
import statistics

import committed_results
import pytest
from made_up_groups import run

from repro.figures import claims, momentum, select_from_k_times_P
from repro.report import prefixes, same_settings
from repro.report.group import Group
from repro.report.summaries import Results

OF = "select_from_k_times_P"


def test_a_whole_run_stands_beside_those_that_convergence_trained() -> None:
    committed = committed_results.load()
    trained = [group for group in committed.groups("convergence") if group.whole and group.nodes == 4]
    topk = next(group for group in trained if group.algo == "topk" and group.encoded)
    chosen = next(group for group in committed.groups(OF) if group.algo == "gtopk_from_topk" and not group.whole)
    algo = chosen.settings["algo"]
    whole = dataclasses.replace(topk, settings=topk.settings | {"algo": algo}, runs=["chosen"])
    short = [group for group in committed.groups(OF) if not group.whole]
    alone, beside = (results(committed, groups, trained) for groups in (short, [*short, whole]))

    assert prefixes.with_whole_runs(alone, OF) == short, "nothing whole is there to stand beside"
    schedules = {(row["algo"], row["schedule"]) for row in select_from_k_times_P.table(beside)}
    assert schedules == {(name, "141 epochs") for name in ("dense", "topk", "gtopk_from_topk")}
    (said,) = (row for row in claims.table(beside) if row["claim"] == "ResNet-20: k of the k × P entries are enough")
    equal = "undecided" if topk.n == 1 else "reproduced"  # each pair of seeds is one run twice
    assert (said["n"], said["verdict"]) == (topk.n, equal) and "+0.00" not in said["ours"]
    ends = [100 * own[-1] for own in topk.seed_accuracies] or [100 * topk.curve[-1]["test_accuracy"]]
    best = f"{statistics.fmean(ends):.2f} %"
    assert said["ours"] == f"{best} against {best}", "both are copies of one run"

    again = results(committed, [*short, whole, topk], trained)
    assert [group.algo for group in prefixes.with_whole_runs(again, OF) if group.whole].count("topk") == 1
    first = dataclasses.replace(topk, seeds=topk.seeds[:1], runs=topk.runs[:1], seed_accuracies=[], fingerprint="")
    of_one = prefixes.with_whole_runs(results(committed, [*short, first], trained), OF)
    assert [group.n for group in of_one if group.whole and group.algo == "topk" and group.encoded] == [topk.n]


def test_a_seed_that_was_trained_twice_counts_once_with_its_mean() -> None:
    whole = (group for group in committed_results.load().groups("convergence") if group.whole and group.nodes == 4)
    topk = next(group for group in whole if group.algo == "topk" and not group.encoded)
    assert (topk.n, topk.seeds) == (1, [0])
    again = dataclasses.replace(
        topk, curve=[row | {"test_accuracy": row["test_accuracy"] - 0.02} for row in topk.curve]
    )
    other = dataclasses.replace(topk, seeds=[1])
    (pooled,) = prefixes.at_epoch([topk, again, other], 15)
    value = 100 * next(row["test_accuracy"] for row in topk.curve if row["epoch"] == 15)
    assert pooled.n == 2 and pooled.accuracies == pytest.approx({0: value - 1, 1: value})


def test_of_seeds_that_kept_their_mean_alone_there_is_the_mean() -> None:
    """As of convergence.json's first groups: with these, the momentum figure ended in a traceback."""
    old = next(
        group for group in committed_results.load().groups("convergence") if group.n == 2 and not group.seed_accuracies
    )
    last = old.curve[-1]
    (pooled,) = prefixes.at_epoch([old], old.epochs)
    assert (pooled.n, pooled.accuracies) == (2, {})
    assert (pooled.mean, pooled.std) == (100 * last["test_accuracy"], 100 * last["test_accuracy_std"])

    (pooled,) = prefixes.at_epoch([old], old.epochs, 2)
    both = [100 * row["test_accuracy"] for row in old.curve[-2:]]
    assert (pooled.mean, pooled.std, pooled.n) == (pytest.approx(sum(both) / 2), None, 2)

    one = dataclasses.replace(old, seeds=[5], runs=["5"], curve=[row | {"test_accuracy": 0.5} for row in old.curve])
    (pooled,) = prefixes.at_epoch([old, one], old.epochs)
    assert (pooled.n, pooled.mean, pooled.std, pooled.accuracies) == (1, 50, None, {5: 50})
    (row,) = momentum.table(
        Results({}, {"momentum": {"groups": [vars(one)]}, "convergence": {"groups": [vars(old)]}}, [])
    )
    assert (row["n"], row["test_accuracy"]) == (1, 0.5)


def test_a_run_that_was_evaluated_more_seldom_is_not_compared_by_a_mean() -> None:
    """Its one evaluation stood beside means of five, where accuracy moves by points from one epoch to the next."""
    committed = committed_results.load()
    like = next(group for group in committed.groups("convergence") if group.whole and group.algo == "topk")
    seldom = dataclasses.replace(like, curve=[row for row in like.curve if row["epoch"] % 5 == 0], seed_accuracies=[])
    assert [one.n for one in prefixes.at_epoch([seldom], 15)] == [1]
    assert prefixes.at_epoch([seldom], 15, 5) == []
    assert [one.n for one in prefixes.at_epoch([like], 15, 5)] == [1]


def test_seeds_on_other_images_are_not_of_one_setting() -> None:
    topk = next(
        group for group in committed_results.load().groups("convergence") if group.whole and group.algo == "topk"
    )
    same, other = dataclasses.replace(topk, seeds=[1]), dataclasses.replace(topk, seeds=[2], fingerprint="another")
    old = dataclasses.replace(topk, seeds=[3], fingerprint="")
    pooled = prefixes.at_epoch([topk, other, same, old], 15)
    assert [sorted(one.accuracies) for one in pooled] == [[0, 1, 3], [2]]

    committed = committed_results.load()
    renamed = dataclasses.replace(topk, data="cifar10 (original)", fingerprint="another")
    found = prefixes.with_whole_runs(results(committed, [renamed], [topk]), OF)
    assert [group.data for group in found] == [renamed.data]


def test_a_run_on_other_images_stays_beside_the_committed_one() -> None:
    topk = next(
        group for group in committed_results.load().groups("convergence") if group.whole and group.algo == "topk"
    )
    other = dataclasses.replace(topk, data="cifar10 (original)", fingerprint="another")
    again = dataclasses.replace(topk, runs=["again"])
    there = {"groups": [vars(topk)]}
    beside = same_settings.put_over(there, {"groups": [vars(other)]})["groups"]
    assert sorted(group["data"] for group in beside) == [topk.data, other.data]
    assert [group["runs"] for group in same_settings.put_over(there, {"groups": [vars(again)]})["groups"]] == [
        ["again"]
    ]


def test_a_prefix_has_the_whole_runs_of_its_setting_at_its_last_epoch() -> None:
    groups = committed_results.load().groups("convergence")
    begun = [group for group in groups if prefixes.is_prefix(group)]
    assert begun and all(group.schedule.startswith("first ") for group in begun)
    assert not any(group.schedule.startswith("first ") for group in groups if group not in begun)
    topk = next(group for group in groups if group.whole and group.algo == "topk")
    short = dataclasses.replace(
        topk, settings=topk.settings | {"epochs": 15}, curve=topk.curve[:15], seeds=[7], runs=["7"]
    )
    pooled = prefixes.whole_runs_at_its_end(short, groups)
    assert pooled is not None and pooled.mean == 100 * topk.at(15)["test_accuracy"]
    others = [group for group in groups if group is not topk]
    assert prefixes.whole_runs_at_its_end(short, [short, *others]) is None


def results(committed: Results, own: list[Group], convergence: list[Group]) -> Results:
    made = {OF: own, "convergence": convergence}
    return dataclasses.replace(committed, summaries={name: {"groups": list(map(vars, made[name]))} for name in made})


def test_the_epoch_before_a_drop_is_a_mean_and_the_one_after_it_is_not() -> None:
    one = run("gtopk", epochs=10, lr_drops=[5.0])
    assert [prefixes.averaged(one, epoch) for epoch in (4, 5, 6)] == [1, 5, 1]


def test_of_means_alone_those_of_most_seeds_are_told() -> None:
    few, many = (
        dataclasses.replace(run("gtopk", n_seeds=n), seed_accuracies=[], seeds=list(range(first, first + n)))
        for n, first in ((2, 0), (3, 5))
    )
    (pooled,) = prefixes.at_epoch([few, many], 5)
    assert (pooled.n, pooled.accuracies) == (3, {})
