"""The best number of stages of each strategy, and what the lab measured, never in one column."""

import made_up_results

from repro.figures import strategies


def test_the_fastest_that_trains_alike_is_marked() -> None:
    rows = strategies.table(made_up_results.everything())
    best = {(row["network"], row["nodes"]): row for row in rows if row["best"]}
    assert best["ethernet1g", 4]["strategy"] == "pipeline × dense" and best["ethernet1g", 4]["stages"] == 2
    assert best["infiniband100g", 8]["strategy"] == "gTop-k" and best["infiniband100g", 8]["over_dense"] == 3
    assert len(best) == 4
    named = {row["strategy"] for row in rows}
    assert {"pipeline", "averages, asynchronous", "dense, 4 batches a step"} <= named <= set(strategies.COLOURS)


def test_predicted_and_measured_have_columns_of_their_own() -> None:
    rows = strategies.table(made_up_results.everything())
    measured = [row for row in rows if row["source"].startswith("measured, dilated")]
    assert len(measured) == 2 and {row["stages"] for row in measured} == {1, 2}
    assert all((row["predicted_s"] is None) == (row in measured) == (row["measured_s"] is not None) for row in rows)
