"""Lists real iterations on 8 nodes with shaped 1 Gbps links, and their speed-ups beside the published ones."""

from repro.config import groups
from repro.figures import _draw, _times
from repro.iteration_time import PARTS, IterationTime
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Iterations measured on shaped 1 Gbps links"
COMMAND = "repro run experiment=lab"


def table(results: Results) -> list[Row]:
    return compared(results, "lab")


def compared(results: Results, experiment: str) -> list[Row]:
    """Returns measured and modelled seconds in separate rows; the speed-up is over dense of the same source and nodes.

    An iteration takes less than its parts where communication hides behind compute.
    """
    rows = _times.of_experiment(results, experiment)
    totals = {_key(row, row["algo"]): IterationTime.of(row).total for row in rows}
    table = []
    for row in rows:
        total, dense = totals[_key(row, row["algo"])], totals.get(_key(row, "dense"))
        rates = results.paper["throughput_per_node"].get(row["model"], {})
        ours, theirs = (rates.get(algo, {}).get(row["nodes"]) for algo in (row["algo"], "dense"))
        table.append(
            {
                "model": _draw.model_name(row["model"]),
                "network": groups.title("network", row["network"]),
                "algorithm": _draw.algo_name(row["algo"]),
                "nodes": row["nodes"],
                "source": row["source"],
                **{f"{part[:-2]} (ms)": 1e3 * row[part] for part in PARTS},
                "iteration (ms)": 1e3 * total,
                "over dense": dense / total if dense else None,
                "published over dense": ours / theirs if ours and theirs else None,
            }
        )
    return table


def _key(row: Row, algo: str) -> tuple[str, str, int, str, str]:
    return row["model"], algo, row["nodes"], row["source"], row["network"]
