"""Lists real iterations on 8 nodes with shaped 1 Gbps links, and their speed-ups over dense."""

from typing import Any

from repro.config import groups
from repro.figures import _draw, _times
from repro.iteration_time import PARTS, IterationTime
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Iterations measured on shaped 1 Gbps links"
COMMAND = "repro run experiment=lab"
PUBLISHED = "published over dense"
BESIDE = {"batch_per_node": "batch per node", "density": "density", "precision": "precision", "overlap": "overlap"}


def table(results: Results) -> list[Row]:
    return compared(results, "lab")


def compared(results: Results, experiment: str) -> list[Row]:
    """Returns measured and modelled seconds in separate rows; the speed-up is over dense of the same source and nodes.

    An iteration takes less than its parts where communication hides behind compute. A setting that tells rows of one
    algorithm apart has a column, and so has the published speed-up where rows have the batch that it was timed with.
    """
    rows = _times.of_experiment(results, experiment)
    exact = [row for row in rows if row["algo"] == "dense" and row["overlap"] == "off"]
    of_dense = {_place(row): IterationTime.of(row) for row in exact}
    beside = [name for name in BESIDE if _differs(rows, name)]
    table = []
    for row in rows:
        time, dense = IterationTime.of(row), of_dense.get(_place(row))
        rates = results.paper["throughput_per_node"].get(row["model"], {})
        ours, theirs = (rates.get(algo, {}).get(row["nodes"]) for algo in (row["algo"], "dense"))
        table.append(
            {
                "model": _draw.model_name(row["model"]),
                "network": groups.title("network", row["network"]),
                "algorithm": _draw.algo_name(row["algo"]),
                "nodes": row["nodes"],
                **{BESIDE[name]: row[name] for name in beside},
                "source": row["source"],
                **{f"{part[:-2]} (ms)": 1e3 * row[part] for part in PARTS},
                "iteration (ms)": 1e3 * time.total,
                "over dense": time.speedup_over(dense) if dense else None,
                PUBLISHED: ours / theirs if ours and theirs and row["as_timed"] else None,
            }
        )
    known = any(row[PUBLISHED] is not None for row in table)
    return table if known else [{name: row[name] for name in row if name != PUBLISHED} for row in table]


def _place(row: Row) -> tuple[Any, ...]:
    """Returns what an iteration shares with the dense one that it is compared with, whose density is always 1."""
    return tuple(row[name] for name in ("model", "nodes", "source", "network", "batch_per_node", "precision"))


def _differs(rows: list[Row], name: str) -> bool:
    """Returns whether rows of one network and algorithm have several values of `name`."""
    return len({(row["model"], row["algo"], row[name]) for row in rows}) > len({(r["model"], r["algo"]) for r in rows})
