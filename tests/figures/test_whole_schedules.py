"""Whole runs stand by stretches of the schedule, pooled over seeds, below dense of their seeds and beside others'."""

from typing import Any

import pytest
from made_up_groups import whole

from repro.figures import momentum_rules, whole_schedules
from repro.report.summaries import Results


def table(*groups: dict[str, Any], reference: list[dict[str, Any]] | None = None, **more: Any) -> list[dict[str, Any]]:
    found = {"convergence": {"groups": list(groups)}, **{name: {"groups": own} for name, own in more.items()}}
    return whole_schedules.table(Results({}, found, reference or []))


def test_stretches_are_means_of_all_their_epochs() -> None:
    often, sparse = table(whole("gtopk", [0]), whole("dense", [0], every=4))
    assert [sparse[name] for name in whole_schedules.STRETCHES] == pytest.approx([0.3, 4.6, 11.15])
    assert [often[name] for name in whole_schedules.STRETCHES] == [None, None, None]
    assert sparse["end (%)"] == often["end (%)"] == pytest.approx(14.1)
    assert sparse["momentum"] == "momentum after aggregation" and sparse["source"] == "trained, bfloat16"


def test_points_below_dense_are_of_the_seeds_that_both_have() -> None:
    dense, sparse, none = table(
        whole("dense", [0, 1, 2]), whole("gtopk", [1, 2], more=-0.01), whole("topk", [0], momentum=0.0, more=-0.01)
    )
    assert (dense["n"], dense["below dense (points)"], dense["each seed's end (%)"]) == (3, None, "14.10, 14.20, 14.30")
    by_name = {row["algorithm"]: row for row in (sparse, none)}
    assert by_name["gTop-k"]["below dense (points)"] == pytest.approx(1.0)
    (other,) = (row for name, row in by_name.items() if name != "gTop-k")
    assert "lr 0.1" in other["algorithm"] and other["below dense (points)"] is None, "of another size of updates"


def test_seeds_of_one_setting_in_two_experiments_have_one_row_and_short_runs_none() -> None:
    short = whole("topk", [0]) | {"runs": ["short"]}
    short["settings"]["epochs"] = 15
    (row,) = table(whole("gtopk", [0]), short, momentum=[whole("gtopk", [3], more=0.1)])
    assert (row["n"], row["each seed's end (%)"]) == (2, "14.10, 24.10")
    assert row["training loss"] is None, "it is of one group's seeds"


def test_curves_of_others_are_pooled_by_setting() -> None:
    run = {"model": "resnet20", "batch_per_node": 32, "lr": 0.1, "density": 0.001, "algo": "topk", "nodes": 4, "job": 1}
    curves = [run | {"test_accuracy": [float(value)] * 140} for value in (80, 90)]
    far = run | {"nodes": 16, "test_accuracy": [50.0] * 140}
    *_, row = table(whole("gtopk", [0]), reference=[*curves, far])
    assert (row["source"], row["n"], row["nodes"]) == ("reference", 2, 4)
    assert [row[name] for name in whole_schedules.STRETCHES] == [85.0] * 3
    assert len(table(whole("gtopk", [0]), reference=[*curves, far])) == 2


def test_curves_at_another_rate_are_of_another_setting() -> None:
    """A run of ours without momentum at a rate of 1 moves the weights as far as theirs at 0.1, not as theirs at 1."""
    run = {"model": "resnet20", "batch_per_node": 32, "density": 0.001, "algo": "topk", "nodes": 4, "job": 1}
    curves = [run | {"lr": lr, "test_accuracy": [end] * 140} for lr, end in ((0.1, 91.0), (1.0, 88.0))]
    none = whole("gtopk", [0], momentum=0.0, lr=1.0)

    def ends(*groups: dict[str, Any]) -> list[str]:
        rows = table(*groups, reference=curves)
        return [row["each seed's end (%)"] for row in rows if row["source"] == "reference"]

    assert ends(whole("gtopk", [0]), none) == ["91.00"] and ends(none) == []
    assert sorted(ends(whole("gtopk", [0]), whole("gtopk", [0], lr=1.0))) == ["88.00", "91.00"]


def test_a_line_of_the_momentum_table_has_all_rules_of_an_algorithm() -> None:
    found = [whole("gtopk", [0, 1], epochs=15), whole("gtopk", [0], epochs=15, momentum=0.0, lr=1.0)]
    (row,) = momentum_rules.table(Results({}, {"momentum": {"groups": found}}, []))
    cells = [value for name, value in row.items() if name.endswith("% (n)")]
    assert cells == ["1.4 (2)", None, None, "1.3 (1)"] and row["epochs"] == "mean of 11 to 15"


def test_a_curve_of_others_that_ends_early_is_left_out() -> None:
    run = {"model": "resnet20", "batch_per_node": 32, "lr": 0.1, "density": 0.001, "algo": "topk", "nodes": 4, "job": 1}
    curves = [run | {"test_accuracy": [value] * epochs} for value, epochs in ((90.0, 140), (40.0, 100))]
    *_, row = table(whole("gtopk", [0]), reference=curves)
    assert (row["source"], row["n"], row["each seed's end (%)"]) == ("reference", 1, "90.00")
    (row,) = table(whole("gtopk", [0]), reference=curves[1:])
    assert row["source"] != "reference"


def test_seeds_in_several_groups_are_below_dense_of_their_seed() -> None:
    """It was of one pair of groups, whatever the row was pooled of, and a second group of dense was below the first."""
    rows = table(
        whole("dense", [0]), whole("gtopk", [1]), whole("gtopk", [2], more=-0.03),
        momentum=[whole("dense", [1, 2], more=0.01), whole("gtopk", [3]) | {"runs": ["another"]}],
    )  # fmt: skip
    dense, sparse = rows
    assert (dense["n"], dense["below dense (points)"]) == (3, None)
    assert (sparse["n"], sparse["below dense (points)"]) == (3, pytest.approx((1.1 + 4.2) / 2))


def test_runs_that_two_experiments_have_count_with_all_their_seeds() -> None:
    three = whole("gtopk", [0, 1, 2])
    one = whole("gtopk", [0]) | {"runs": three["runs"][:1]}
    assert [row["n"] for row in table(three, momentum=[one])] == [3]


def test_a_stretch_is_of_all_seeds_or_of_none() -> None:
    (row,) = table(whole("gtopk", [0]), whole("gtopk", [1], every=4))
    assert row["n"] == 2 and [row[name] for name in whole_schedules.STRETCHES] == [None] * 3


def test_a_warm_up_as_long_as_the_high_rate_leaves_no_stretch_between_them() -> None:
    run = {"model": "resnet20", "batch_per_node": 32, "lr": 0.1, "density": 0.001, "algo": "topk", "nodes": 4, "job": 1}
    rows = table(whole("gtopk", [0], lr_warmup_epochs=81.0), reference=[run | {"test_accuracy": [80.0] * 140}])
    assert [row["high rate (%)"] for row in rows] == [None, None]


def test_runs_of_one_rule_that_differ_in_more_share_a_cell() -> None:
    found = [whole("gtopk", [0], epochs=15), whole("gtopk", [0], epochs=15, more=0.1, weight_decay_of="weights")]
    (row,) = momentum_rules.table(Results({}, {"momentum": {"groups": found}}, []))
    assert row["momentum after aggregation, % (n)"] == "11.3 (1); 1.3 (1)"
