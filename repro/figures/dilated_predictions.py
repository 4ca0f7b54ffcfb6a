"""Holds the shortest prediction, and the replay model of `repro tune` and `simulate`, to what the dilated lab measured.

Predicted are the counted messages on the network's alpha and beta, beside the same compute and compress.
"""

import statistics
from typing import NamedTuple

from repro.config.groups import title
from repro.figures import _times
from repro.figures._draw import model_name
from repro.figures.dilated_iterations import NODES, name
from repro.iteration_time import DILATED, IterationTime
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "The shortest prediction and the replay model against the dilated lab"
COMMAND = "repro run experiment=dilated"
LEAST = 2  # candidates, to choose among


class Case(NamedTuple):
    """What candidates share among which a planner chooses."""

    model: str
    network: str
    batch_per_node: int
    nodes: int
    node: str
    stated_s: float | None  # compute of a stated node


def table(results: Results) -> list[Row]:
    """Returns one row for each network, wire, nodes and node, the mean and the worst; errors are of predictions.

    The planner's choice is the shortest prediction, unless one within 2 % relaxes less.
    """
    measured = [row for row in _times.dilated(results) if row["modelled_s"] is not None]
    cases: dict[Case, list[Row]] = {}
    for row in measured:
        cases.setdefault(Case(*(row[name] for name in Case._fields)), []).append(row)
    for case, candidates in cases.items():
        if case.node == "paper_compute":  # dense has no compress: it is the same on both nodes
            dense = cases.get(case._replace(node="paper"), [])
            candidates += [row for row in dense if row["algo"] == "dense"]
    rows = [_row(case, candidates) for case, candidates in cases.items() if len(candidates) >= LEAST]
    if not rows:
        return []
    empty, of_all = dict.fromkeys(rows[0]), ("regret", *(column for column in rows[0] if column.startswith("error")))
    ends = (("mean", statistics.fmean), ("worst", max))
    return rows + [
        empty
        | {"model": said}
        | {column: end([row[column] for row in rows]) for column in of_all}
        | {"source": DILATED}
        for said, end in ends
    ]


def _row(case: Case, candidates: list[Row]) -> Row:
    seconds = [(row["modelled_s"], IterationTime.of(row).total, row) for row in candidates]
    predicted_s, chosen_s, chosen = min(seconds, key=lambda one: one[0])
    _, best_s, best = min(seconds, key=lambda one: one[1])
    waits = [_waits(row) for row in candidates]
    return {
        "model": model_name(case.model),
        "network": title("network", case.network),
        "nodes": case.nodes,
        "node": NODES[case.node],
        "candidates": len(candidates),
        "shortest predicted": name(chosen),
        "predicted (ms)": 1e3 * predicted_s,
        "measured (ms)": 1e3 * chosen_s,
        "best measured": name(best),
        "its (ms)": 1e3 * best_s,
        "regret": chosen_s / best_s,
        "error of iterations, median (%)": statistics.median(_error(p, m) for p, m, _ in seconds),
        "error, worst (%)": max(_error(p, m) for p, m, _ in seconds),
        "error of communication, median (%)": statistics.median(_error(*wait) for wait in waits),
        "source": DILATED,
    }


def _waits(row: Row) -> tuple[float, float]:
    """Returns for how long an iteration waits for communication: predicted, and measured."""
    work = row["compute_s"] + row["compress_s"]
    return row["modelled_s"] - work, IterationTime.of(row).total - work


def _error(predicted: float, measured: float) -> float:
    return 100 * abs(predicted / measured - 1)
