"""Points below dense, and how often an entry can move, of ours and of the reference curves."""

import made_up_groups
import made_up_results
import pytest

from repro.figures import gap_over_moves
from repro.report.summaries import Results
from repro.tables import Row


def rows(*groups: dict) -> list[Row]:
    results = Results({}, {"one": {"groups": groups}, "two": {"groups": groups}}, made_up_results.REFERENCE)
    return gap_over_moves.table(results)


def test_a_run_is_a_mark_wherever_its_summary_stands() -> None:
    dense, topk, gtopk = (made_up_groups.group("resnet20", algo, n_seeds=2) for algo in ("dense", "topk", "gtopk"))
    found = [row for row in rows(dense, topk, gtopk) if row["source"] == "trained"]
    assert [(row["algo"], row["seeds"]) for row in found] == [
        ("topk", "0"),
        ("topk", "1"),
        ("gtopk", "0"),
        ("gtopk", "1"),
    ]
    assert [row["below_dense"] for row in found] == pytest.approx([1, 1, 2, 2], abs=1e-3)
    once = 4 * 0.004 + 496 * 0.001  # the warm-up's epoch is one of 141 in 500 steps
    assert [row["moves"] for row in found] == pytest.approx([4 * once, 4 * once, once, once])
    assert [row["sent"] for row in found] == pytest.approx([once, once, once / 4, once / 4])
    assert {row["momentum"] for row in found} == {"momentum after aggregation"}


def test_of_a_run_that_two_experiments_have_the_group_of_more_seeds_is_drawn() -> None:
    dense, both, one = (
        made_up_groups.group("resnet20", algo, n_seeds=n) for algo, n in (("dense", 2), ("gtopk", 2), ("gtopk", 1))
    )
    assert both["runs"][0] == one["runs"][0]
    summaries = {"first": {"groups": [dense, both]}, "second": {"groups": [one]}}
    found = gap_over_moves.table(Results({}, summaries, made_up_results.REFERENCE))
    assert [row["seeds"] for row in found if row["source"] == "trained"] == ["0", "1"]


def test_a_run_of_one_name_on_other_images_is_a_mark_of_its_own() -> None:
    """The run id does not say on what images a run was, where no other was there before it."""
    jpeg = [made_up_groups.group("resnet20", algo) for algo in ("dense", "gtopk")]
    original = [one | {"data": "cifar10"} for one in jpeg]
    found = [row["data"] for row in rows(*jpeg, *original) if row["source"] == "trained"]
    assert sorted(found) == ["cifar10", "cifar10 (JPEG folder)"]


def test_old_summaries_of_several_seeds_are_one_mark() -> None:
    dense, gtopk = (made_up_groups.group("resnet20", algo, n_seeds=2) for algo in ("dense", "gtopk"))
    del gtopk["seed_accuracies"]
    (row,) = [row for row in rows(dense, gtopk) if row["source"] == "trained"]
    assert (row["n"], row["seeds"], row["below_dense"]) == (2, "0 1", pytest.approx(2))


def test_without_a_dense_run_like_it_there_is_no_gap() -> None:
    dense, gtopk = (made_up_groups.group("resnet20", algo, nodes=p) for algo, p in (("dense", 4), ("gtopk", 8)))
    assert [row for row in rows(dense, gtopk) if row["source"] == "trained"] == []


def test_the_reference_is_below_the_mean_of_its_dense_runs() -> None:
    found = [row for row in rows() if row["source"] == "reference"]
    assert [row["below_dense"] for row in found] == pytest.approx([60.1 - 59.0, 60.1 - 59.4])
    assert {row["steps"] for row in found} == {2 * 50_000 // (4 * 32)}
    once = 391 * 0.015625 + 390 * 0.004  # both of its epochs are warm-ups
    assert [row["moves"] for row in found] == pytest.approx([once * 4] * 2)
    assert [row["sent"] for row in found] == pytest.approx([once] * 2)


def test_where_every_node_sends_the_updates_entries_it_sends_them_as_often_as_they_move() -> None:
    names = ("dense", "gtopk_exact", "randomk", "scalecom", "gtopk_butterfly")
    found = {row["algo"]: row for row in rows(*(made_up_groups.group("resnet20", name) for name in names))}
    assert [found[name]["sent"] / found[name]["moves"] for name in names[1:]] == pytest.approx([1 / 4, 1, 1, 1 / 4])


def test_each_seed_is_held_against_dense_of_its_own_wherever_that_stands() -> None:
    """Dense's two seeds are of two experiments: one seed was left out, or held against another one's."""
    dense, gtopk = (made_up_groups.group("resnet20", algo, n_seeds=2) for algo in ("dense", "gtopk"))
    alone = []
    for place, seed in enumerate(dense["seeds"]):
        one = dense | {"seeds": [seed], "runs": [dense["runs"][place]], "seed_accuracies": []}
        one["curve"] = [
            row | {"test_accuracy": accuracy}
            for row, accuracy in zip(dense["curve"], dense["seed_accuracies"][place], strict=True)
        ]
        alone.append(one)
    third = gtopk | {"seeds": [2], "runs": ["third"], "seed_accuracies": [], "curve": gtopk["curve"]}
    found = [row for row in rows(*alone, gtopk, third) if row["source"] == "trained"]
    assert [row["seeds"] for row in found] == ["0", "1"], "nothing is known of dense with seed 2"
    assert [row["below_dense"] for row in found] == pytest.approx([2, 2], abs=1e-3)


def test_updates_larger_than_the_momentums_are_the_algorithms_own() -> None:
    dense, corrected = (made_up_groups.group("resnet20", algo) for algo in ("dense", "gtopk_corrected"))
    for gain, marks in ((10.0, 1), (40.0, 1), (1.0, 0)):
        corrected["settings"] |= {"momentum": 0.0}
        corrected["settings"]["algo"] |= {"gain": gain}
        assert len([row for row in rows(dense, corrected) if row["source"] == "trained"]) == marks
