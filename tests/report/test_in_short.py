"""The table of how trainings ended keeps its rows when one more run is collected."""

import copy
import dataclasses
from typing import Any

import committed_results
import made_up_groups
import pytest

from repro.report import in_short, page_parts, summaries
from repro.report.summaries import Results


@pytest.fixture(scope="module")
def before() -> Results:
    return committed_results.load()


def whole_run(data: Results, algo: str) -> dict[str, Any]:
    """A copy of the committed one of ResNet-20 on four nodes and the original images."""
    (group,) = (
        one
        for one in data.groups("convergence")
        if (one.model, one.algo, one.data, one.nodes, one.settings["epochs"]) == ("resnet20", algo, "cifar10", 4, 141)
    )
    return copy.deepcopy(vars(group))


def with_more(data: Results, more: dict[str, Any], first: bool) -> Results:
    there = data.summaries["convergence"]["groups"]
    groups = [more, *there] if first else [*there, more]
    return dataclasses.replace(data, summaries=data.summaries | {"convergence": {"groups": groups}})


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    "other",
    [
        {"precision": "float32"},
        {"lr_warmup_epochs": 5.0},
        {"epochs": 160},
        {"batch_per_node": 64},
        {"lr": 0.2, "momentum": 0.8},  # which move the weights as far as the usual ones
    ],
    ids=str,
)
@pytest.mark.parametrize("algo", ["dense", "gtopk"])
def test_one_run_more_takes_no_result_away(before: Results, algo: str, other: dict[str, Any], first: bool) -> None:
    """A dense run alone took the place of all algorithms, and a longer one that of all networks."""
    more = whole_run(before, algo)
    more["settings"] |= other
    more["runs"] = ["one more"]
    for row in more["curve"]:
        row["test_accuracy"] -= 0.1
    if "epochs" in other:
        more["curve"] += [more["curve"][-1] | {"epoch": epoch} for epoch in range(142, 161)]
    data = with_more(before, more, first)
    assert in_short.table(data) == in_short.table(before)
    assert in_short.sentences(data, []) == in_short.sentences(before, [])
    told = [page_parts._accuracy(algo, results, in_short.ends(results)) for results in (data, before)]
    assert told[0] == told[1]


def test_a_pair_under_other_conditions_says_which() -> None:
    made = [made_up_groups.group("resnet20", algo, batch=64) for algo in ("dense", "gtopk")]
    for group in made:
        group["settings"] |= {"epochs": 141, "lr": 0.2}
    (row,) = in_short.table(Results(summaries.paper(), {"convergence": {"groups": made}}))
    assert row["trained"] == "141 epochs, batch 64 per node, not 32, learning rate 0.2, not 0.1"
    assert row["gTop-k below dense (points)"] == "2.00"


def test_networks_of_unlike_schedules_are_told_with_their_own() -> None:
    made = [made_up_groups.group(model, algo) for model in ("resnet20", "vgg16") for algo in ("dense", "gtopk")]
    for group in made[2:]:
        group["settings"] |= {"epochs": 4, "batch_per_node": 128}
        group["curve"] = group["curve"][:4]
    data = Results(summaries.paper(), {"convergence": {"groups": made}})
    (said,) = in_short.sentences(data, [])
    short = "over the schedule of 141 epochs compressed to"
    assert "48.00 % against 50.00 %" in said and f"{short} 5, n = 1) and" in said and f"{short} 4, n = 1)." in said
    assert [row["network"] for row in in_short.table(data)] == ["ResNet-20", "VGG-16"]
