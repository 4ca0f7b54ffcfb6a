"""The figure of all algorithms is of one schedule, and takes runs that were made for others where they are alike."""

from typing import Any

import pytest
from made_up_groups import group, whole

from repro.figures import families
from repro.report import page_parts
from repro.report.summaries import Results

COMPRESSED = [group("resnet20", algo) for algo in ("dense", "topk")]
NO_MOMENTUM = {"momentum": 0.0, "lr": 1.0}
ALL = {"density": 1.0}  # entries are sent


def first(algo: str, *seeds: int, more: float = 0.0, **settings: Any) -> dict[str, Any]:
    return whole(algo, list(seeds), more=more, epochs=15, **settings)


def results(own: list[dict[str, Any]], *others: dict[str, Any]) -> Results:
    return Results({}, {"families": {"groups": own}, "convergence": {"groups": list(others)}}, [])


def by_name(rows: list[dict[str, Any]]) -> dict[tuple[str, float], dict[str, Any]]:
    return {(row["algo"], row["density"]): row for row in rows}


def test_runs_of_other_experiments_count_where_they_are_alike() -> None:
    rows = by_name(families.table(results(
        [first("gtopk", 0), first("powersgd", 0, **ALL)],
        whole("gtopk", [1, 2]), whole("dense", [0]), whole("topk", [0, 1], more=0.1),
        first("gtopk_butterfly", 0, **NO_MOMENTUM), first("qsgd", 0, nodes=8, **ALL),
        first("fp16", 0, precision="float32", **ALL),
    )))  # fmt: skip
    assert set(rows) == {("gtopk", 0.001), ("powersgd", 1), ("dense", 1), ("topk", 0.001)}
    assert {row["schedule"] for row in rows.values()} == {"first 15 of 141 epochs"}
    gtopk, topk = rows["gtopk", 0.001], rows["topk", 0.001]
    assert (gtopk["n"], gtopk["seeds"], gtopk["epoch"], gtopk["epochs averaged"]) == (3, "0 1 2", 15, 5)
    assert gtopk["test_accuracy"] == pytest.approx(0.013 + 0.0015 / 1.5)  # epochs 11 to 15, seeds 0 to 2
    assert (topk["n"], topk["test_accuracy"]) == (2, pytest.approx(0.1135))


@pytest.mark.parametrize("place", ["own", "other"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_variant_of_more_seeds_does_not_take_an_algorithms_name(place: str, order: int) -> None:
    usual = first("gtopk", 0)
    variants = [first("gtopk", 1, 2, more=0.2, **NO_MOMENTUM), first("gtopk", 3, 4, more=0.3, lr=0.05)]
    own = [usual, *variants][::order] if place == "own" else variants
    others = [] if place == "own" else [usual]
    (row,) = families.table(results(own, *others))
    assert (row["seeds"], row["schedule"]) == ("0", "first 15 of 141 epochs")
    assert row["test_accuracy"] == pytest.approx(0.013)


def test_of_two_spellings_of_one_rule_that_of_more_seeds_is_shown() -> None:
    """1-bit SGD has a gain of 10 by its file; a rate ten times as large is as much, and was trained with two seeds."""
    own = first("onebit", 0, **ALL, lr=0.1, momentum=0.0)
    own["settings"]["algo"] = own["settings"]["algo"] | {"gain": 10.0}
    other = first("onebit", 0, 1, more=0.1, **ALL, lr=1.0, momentum=0.0)
    (row,) = families.table(results([own], other))
    assert row["seeds"] == "0 1"


def test_a_variant_alone_says_what_it_is() -> None:
    data = results([first("dense", 0), first("gtopk", 0, **NO_MOMENTUM)])
    rows = by_name(families.table(data))
    assert (
        rows["gtopk", 0.001]["schedule"] == "first 15 of 141 epochs, learning rate 1.0, not 0.1, momentum 0.0, not 0.9"
    )
    assert "momentum 0.0, not 0.9" in (page_parts._accuracy("gtopk", data, []) or "")


def test_the_options_of_an_algorithms_file_go_before_those_of_more_seeds_and_others_may_stand_alone() -> None:
    """As 1-bit Adam's shorter warm-up in a compressed schedule, which no other run has."""

    def of_rank(rank: int, *seeds: int, **settings: Any) -> dict[str, Any]:
        made = first("powersgd", *seeds, **ALL, **settings)
        made["settings"]["algo"]["options"] = {"rank": rank, "seed": 0}
        return made | {"runs": [f"{rank}-{run}" for run in made["runs"]]}

    (row,) = families.table(results([of_rank(2, 0), of_rank(4, 1, 2)]))
    assert row["seeds"] == "0"
    (row,) = families.table(results([of_rank(4, 1, 2)]))
    assert (row["seeds"], row["schedule"]) == ("1 2", "first 15 of 141 epochs, rank 4")


def test_a_gain_in_the_place_of_momentum_is_the_same_rule_as_the_rate_that_it_gives() -> None:
    rows = by_name(families.table(results([first("dense", 0)], whole("onebit", [0, 1], **ALL, **NO_MOMENTUM))))
    assert rows["onebit", 1]["n"] == 2


def test_the_schedule_of_most_algorithms_is_shown_and_of_as_many_the_one_as_it_is_written() -> None:
    few = families.table(results([*COMPRESSED, first("dense", 0)]))
    assert {row["schedule"] for row in few} == {"schedule of 141 epochs compressed to 5"} and len(few) == 2
    many = families.table(results([*COMPRESSED, first("gtopk", 0)], whole("dense", [0])))
    assert {row["schedule"] for row in many} == {"first 15 of 141 epochs"} and len(many) == 2


def test_a_run_that_was_evaluated_seldom_has_its_last_accuracy() -> None:
    (row,) = families.table(results([first("dense", 0) | {"curve": first("dense", 0)["curve"][-1:]}]))
    assert row["test_accuracy"] == pytest.approx(0.015) and row["epochs averaged"] == 1


def test_seeds_are_those_whose_accuracies_were_pooled() -> None:
    """Seed 1 was evaluated at the last epoch alone, and has no mean of five."""
    seldom = first("dense", 1)
    (row,) = families.table(results([first("dense", 0), seldom | {"curve": seldom["curve"][-1:]}]))
    assert (row["n"], row["seeds"], row["epochs averaged"]) == (1, "0", 5)


def test_a_page_tells_the_accuracy_at_the_least_density() -> None:
    data = results([first("dense", 0), first("gtopk", 0), first("gtopk", 0, more=0.2, density=0.01)])
    assert page_parts._accuracy("gtopk", data, []) == (
        "1.30 %, where dense of the same seed has 1.30 % (ResNet-20, 4 nodes, first 15 of 141 epochs, mean of the "
        "last 5 epochs, bfloat16, n = 1, CIFAR-10 (JPEG folder))"
    )
