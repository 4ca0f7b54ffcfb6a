"""Accuracies of wire formats stand beside those of `pairs` of the same seeds, whichever experiment trained these."""

from typing import Any

import committed_results
import made_up_groups
import pytest

from repro.figures import wire_formats
from repro.report.group import Group
from repro.report.summaries import Results


def test_formats_stand_beside_pairs_of_their_seeds() -> None:
    committed = committed_results.load()
    like = next(group for group in committed.groups("convergence") if (group.algo, group.whole) == ("gtopk", True))
    whole = made_up(like, [0], "pairs", [0.5], epochs=141)
    halved = made_up(like, [2], "pairs", [0.9], epochs=15, batch_per_node=16)
    made = {
        "convergence": {"groups": [whole, halved]},
        "wire_formats": {
            "groups": [
                made_up(like, [1], "pairs", [0.6]),
                made_up(like, [0, 1], "packed", [0.49, 0.57]),
                made_up(like, [0], "gaps-bf16", [0.51]),
            ]
        },
        "bytes_per_step": committed.summaries["bytes_per_step"],
    }
    rows = wire_formats.table(Results(committed.paper, made, committed.reference))
    assert [row["format"] for row in rows] == ["pairs", "gaps", "gaps-bf16", "packed"]
    assert {row["schedule"] for row in rows} == {"first 15 of 141 epochs"}, "a whole run is there as its first 15 too"
    assert [row["n"] for row in rows] == [2, 2, 1, 2]
    assert [row["test accuracy (%)"] for row in rows] == pytest.approx([55.0, 55.0, 51.0, 53.0])
    assert [row["source"] for row in rows] == ["trained", "trained as pairs", "trained", "trained"]
    assert [row["above pairs (points)"] for row in rows] == [None, None, pytest.approx(1), pytest.approx(-2)]
    assert rows[3]["from (points)"] == pytest.approx(-2 - 6.3138), "of two pairs, one point either side of their mean"
    assert rows[2]["from (points)"] is rows[2]["to (points)"] is None, (
        "at the high rate one pair of seeds has no interval"
    )
    assert [row["bytes a pair"] for row in rows] == pytest.approx([8, 5.5, 3.5, 2.44], abs=0.1)


def test_a_run_of_a_few_steps_does_not_take_the_place_of_the_others() -> None:
    """As of `experiment=wire_formats steps=150`, whose end no other run has evaluated."""
    committed = committed_results.load()
    own = committed.summaries["wire_formats"]["groups"]
    like = committed.groups("wire_formats")[0]
    short = made_up(like, [0], "pairs", [0.2], epochs=1, steps=150)
    short["curve"][0] |= {"epoch": 0.384615}
    for groups in ([*own, short], [short, *own]):
        made = committed.summaries | {"wire_formats": {"groups": groups}}
        assert wire_formats.table(Results(committed.paper, made, committed.reference)) == wire_formats.table(committed)
    made = committed.summaries | {"wire_formats": {"groups": [short]}}
    rows = wire_formats.table(Results(committed.paper, made, committed.reference))
    assert {row["schedule"] for row in rows} == {"first 150 steps of 141 epochs"}


def test_at_the_high_rate_the_last_five_epochs_are_averaged_and_after_it_the_last_alone_counts() -> None:
    committed = committed_results.load()
    like = next(group for group in committed.groups("convergence") if (group.algo, group.whole) == ("gtopk", True))
    for epochs, averaged in ((15, 5), (141, 1)):
        pairs, packed = (made_up(like, [0], wire, [0.5], epochs=epochs) for wire in ("pairs", "packed"))
        packed["curve"][-1]["test_accuracy"] += 0.1
        made = {"wire_formats": {"groups": [pairs, packed]}, "convergence": {"groups": []}}
        (row,) = (
            row
            for row in wire_formats.table(Results(committed.paper, made, committed.reference))
            if row["format"] == "packed"
        )
        assert row["epochs averaged"] == averaged and row["above pairs (points)"] == pytest.approx(10 / averaged)
        assert (row["from (points)"] is None) == (averaged == 5)


def test_without_runs_there_are_no_rows() -> None:
    committed = committed_results.load()
    made = {"convergence": committed.summaries["convergence"]}
    assert wire_formats.table(Results(committed.paper, made, committed.reference)) == []


def made_up(
    like: Group, seeds: list[int], wire: str, accuracies: list[float], epochs: int = 15, **settings: Any
) -> dict[str, Any]:
    """Every epoch has the same accuracies."""
    (row, *_) = like.curve
    mean = sum(accuracies) / len(accuracies)
    curve = [row | {"epoch": n, "test_accuracy": mean} for n in range(1, epochs + 1)]
    algo = like.settings["algo"] | {"wire": wire}
    return vars(like) | {
        "settings": like.settings | {"epochs": epochs, "algo": algo} | settings,
        "seeds": seeds,
        "curve": curve,
        "seed_accuracies": [[one] * epochs for one in accuracies] if len(seeds) > 1 else [],
    }


def test_runs_that_have_no_accuracy_are_left_out() -> None:
    """As of `experiment=wire_formats model=lstm_small`, which has a perplexity."""
    text = made_up_groups.read(made_up_groups.group("lstm_small", "gtopk"))
    committed = committed_results.load()
    made = {"wire_formats": {"groups": [text]}, "convergence": {"groups": [text]}}
    assert wire_formats.table(Results(committed.paper, made, committed.reference)) == []
