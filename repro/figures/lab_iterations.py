"""Real iterations on 8 nodes with shaped 1 Gbps links, and their speed-ups beside the published ones of 8
nodes."""

from repro.figures import _draw, _times
from repro.results import PARTS, Results
from repro.tables import Row

TITLE = "Iterations measured on shaped 1 Gbps links"
COMMAND = "repro run experiment=lab"


def table(results: Results) -> list[Row]:
    """Measured and modelled seconds in rows of their own; the speed-up is over dense of the same row's kind."""
    rows = _times.of_experiment(results, "lab")
    totals = {_key(row, row["algo"]): sum(row[part] for part in PARTS) for row in rows}
    table = []
    for row in rows:
        total, dense = totals[_key(row, row["algo"])], totals.get(_key(row, "dense"))
        rates = results.paper["throughput_per_node"].get(row["model"], {})
        ours, theirs = (rates.get(algo, {}).get(row["nodes"]) for algo in (row["algo"], "dense"))
        table.append(
            {
                "network": _draw.model_name(row["model"]),
                "algorithm": row["algo"],
                "nodes": row["nodes"],
                "source": row["source"],
                **{f"{part[:-2]} (ms)": 1e3 * row[part] for part in PARTS},
                "iteration (ms)": 1e3 * total,
                "over dense": dense / total if dense else None,
                "published over dense": ours / theirs if ours and theirs else None,
            }
        )
    return table


def _key(row: Row, algo: str) -> tuple[str, str, int, str]:
    return row["model"], algo, row["nodes"], row["source"]
