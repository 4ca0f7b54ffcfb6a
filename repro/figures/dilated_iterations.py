"""Lists iterations of the paper's cluster on real TCP, time dilated, beside the published ones."""

from typing import Any

from repro.figures import _draw, _times
from repro.iteration_time import PARTS, IterationTime
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Iterations of the paper's cluster, measured with time dilated"
COMMAND = "repro run experiment=dilated"
NODES = {
    "paper": "published",
    "paper_compute": "published compute, our selection",
    "measured": "timed here",
    "stated": "stated compute, our selection",
}


def table(results: Results) -> list[Row]:
    """Returns one row for each iteration; `over dense` is over dense without overlap on as many nodes."""
    rows = _times.dilated(results)
    by_repeats = sorted(rows, key=lambda row: row["repeats"])  # of dense measured twice, the last counts
    dense = {_place(row): row for row in by_repeats if row["algo"] == "dense" and row["overlap"] == "off"}
    return [_line(results, row, dense.get(_place(row))) for row in rows]


def _place(row: Row) -> tuple[Any, ...]:
    """Returns what is the same for an algorithm and its dense, which has no compress: it is of both paper's nodes."""
    own = {"measured": row["processor"], "stated": row["stated_s"]}.get(row["node"], "paper")
    return row["model"], row["nodes"], row["network"], row["batch_per_node"], own


def name(row: Row) -> str:
    """Returns the algorithm of an iteration, and whether its messages overlap backward."""
    return _draw.algo_name(row["algo"]) + (", overlapped" if row["overlap"] == "on" else "")


def _line(results: Results, row: Row, dense: Row | None) -> Row:
    rates = results.paper["throughput_per_node"].get(row["model"], {})
    theirs = rates.get(row["algo"], {}).get(row["nodes"]) if row["overlap"] == "off" else None
    total = IterationTime.of(row).total
    modelled = row["modelled_s"]
    return {
        "model": _draw.model_name(row["model"]),
        "nodes": row["nodes"],
        "algorithm": name(row),
        "node": NODES[row["node"]],
        **{f"{part[:-2]} (ms)": 1e3 * row[part] for part in PARTS},
        "hidden (ms)": 1e3 * row["hidden_s"],
        "iteration (ms)": 1e3 * total,
        "from (ms)": 1e3 * min(row["iterations_s"]),
        "to (ms)": 1e3 * max(row["iterations_s"]),
        "modelled (ms)": None if modelled is None else 1e3 * modelled,
        "published (ms)": 1e3 * row["batch_per_node"] / theirs if theirs else None,
        "over dense": IterationTime.of(dense).total / total if dense else None,
        "compress timed on": row["processor"] if row["node"] != "paper" else None,  # unlike machines do not compare
        "D": row["dilation"],
        "source": row["source"],
    }
