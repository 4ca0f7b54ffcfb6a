"""Lists what the lab measures of the same collectives at several dilations of time (not in the paper)."""

from repro.figures import _draw
from repro.iteration_time import DILATED, measured_source
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "The same collectives at several dilations of time"
COMMAND = "benchmarks/dilation.sh"
FILES = ("lab/dilation_dense", "lab/dilation")


def table(results: Results) -> list[Row]:
    """Returns seconds of the network; `apart` is by how much the largest exceeds the least of the dilated ones."""
    every = [row for name in FILES for row in results.summaries.get(name, {}).get("rows", [])]
    offered = sorted({row["dilation"] for row in every})
    found: dict[tuple[int, int, str], dict[float, Row]] = {}
    for row in every:
        found.setdefault((row["nodes"], row["parameters"], row["algo"]), {})[row["dilation"]] = row
    table = []
    for (nodes, parameters, algo), rows in found.items():
        seconds = {dilation: row["seconds"] for dilation, row in rows.items()}
        dilated = [value for dilation, value in seconds.items() if dilation > 1]
        if not dilated:
            continue
        middle = sorted(dilated)[len(dilated) // 2]
        row = {
            "nodes": nodes,
            "parameters": parameters,
            "algorithm": _draw.algo_name(algo),
            **{f"D = {dilation:g} (ms)": _ms(seconds.get(dilation)) for dilation in offered},
            "apart (%)": 100 * (max(dilated) / min(dilated) - 1),
            "D = 1 over the others": seconds[1] / middle if 1 in seconds else None,
            "modelled (ms)": _ms(next(iter(rows.values()))["modelled"]),
            "source": f"{measured_source(1, held=True)} (D = 1); {DILATED}" if 1 in seconds else DILATED,
        }
        table.append(((nodes, parameters, algo), row))
    order = _draw.algos_of(every)
    return [row for _, row in sorted(table, key=lambda pair: (*pair[0][:2], order.index(pair[0][2])))]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
