"""What was trained for the table stands beside the first epochs of whole runs on as many nodes, and below dense."""

from typing import Any

import made_up_groups
import pytest

from repro.figures import many_nodes
from repro.report.summaries import Results


def made_up(algo: str, epochs: int, density: float = 0.001, nodes: int = 32, **algo_settings: Any) -> dict[str, Any]:
    """Of the schedule as it is written; accuracy rises by 2 points an epoch, from twice the density on."""
    group = made_up_groups.group("resnet20", algo, nodes=nodes, density=density)
    group["settings"] |= {"scale_schedule": False, "epochs": epochs}
    group["settings"]["algo"] |= algo_settings
    (row, *_) = group["curve"]
    group["curve"] = [
        row | {"epoch": epoch, "step": 48 * epoch, "test_accuracy": 0.02 * epoch + 2 * group["settings"]["density"] % 1}
        for epoch in range(1, epochs + 1)
    ]
    group["runs"] = [f"{algo}-{density}-{epochs}-{nodes}-{algo_settings}"]
    return group


def test_the_settings_stand_in_order_beside_dense() -> None:
    summaries = {
        "convergence": {
            "groups": [made_up("dense", 141), made_up("gtopk", 141), made_up("gtopk", 141, nodes=4), made_up("topk", 5)]
        },
        "many_nodes": {"groups": [made_up("scalecom", 15, 0.008), made_up("gtopk", 15, 0.016, gain=4.0)]},
    }
    rows = many_nodes.table(Results({}, summaries, []))
    assert [row["density"] for row in rows] == [0.016, 0.008, 0.001, 1.0]
    assert {row["schedule"] for row in rows} == {"first 15 of 141 epochs"}
    assert [row["test accuracy (%)"] for row in rows] == pytest.approx([29.2, 27.6, 26.2, 26.0]), (
        "means of epochs 11 to 15"
    )
    assert [row["below dense (points)"] for row in rows] == pytest.approx([-3.2, -1.6, -0.2, 0.0])
    assert [row["times an entry moves"] for row in rows] == pytest.approx([11.52, 5.76, 0.864, 720])
    assert [row["a node's entry is sent"] for row in rows] == pytest.approx([11.52 / 32, 5.76, 0.864 / 32, 720])
    assert [row["lr / (1 - momentum)"] for row in rows] == [4.0, 1.0, 1.0, 1.0]
    assert many_nodes.table(Results({}, {"convergence": summaries["convergence"]}, [])) == []


def test_rows_where_a_whole_run_ends_say_that_it_is_whole() -> None:
    own = [made_up("scalecom", 15), made_up("gtopk", 141, 0.032)]
    rows = many_nodes.table(Results({}, {"many_nodes": {"groups": own}}, []))
    assert [(row["schedule"], row["density"]) for row in rows] == [
        ("first 15 of 141 epochs", 0.032),
        ("first 15 of 141 epochs", 0.001),
        ("141 epochs", 0.032),
    ]
