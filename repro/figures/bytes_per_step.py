"""Bytes that a node sends in a step, counted where they are sent, with a lower bound (not in the paper)."""

from matplotlib.figure import Figure

from repro.figures import _draw
from repro.network import PAIR_BYTES
from repro.results import Results
from repro.tables import Row

TITLE = "Bytes sent per node and step"
COMMAND = "repro run experiment=bytes_per_step"


def table(results: Results) -> list[Row]:
    """The busiest node's and the mean node's bytes of one recorded step."""
    rows = []
    for group in results.groups("bytes_per_step"):
        for record in group.recorded[-1:]:
            sent = [sum(done[1] * done[4] for done in own) for own in record["schedule"]]
            rows.append(
                {
                    "source": "counted",
                    "model": group.model,
                    "algo": group.algo,
                    "nodes": group.nodes,
                    "parameters": record["parameters"],
                    "k": record["k"],
                    "busiest_bytes": max(sent),
                    "mean_bytes": sum(sent) / len(sent),
                    "bound_bytes": bound(group.algo, group.nodes, record["parameters"], record["k"]),
                }
            )
    return sorted(rows, key=lambda row: (row["model"], row["algo"], row["nodes"]))


def bound(algo: str, nodes: int, parameters: int, k: int) -> float:
    """Bytes that a node must send at least: 2 (P-1)/P m float32 for a dense sum (Patarasuk and Yuan, 2009);
    with sparse vectors its own k pairs must leave it once."""
    if nodes == 1:
        return 0.0
    return 2 * (nodes - 1) / nodes * parameters * 4 if algo == "dense" else float(k * PAIR_BYTES)


def draw(rows: list[Row]) -> Figure:
    figure, (panel,) = _draw.panels(1, height=2.3)
    algos = _draw.algos_of(rows)
    for algo in algos:
        mine = [row for row in rows if row["algo"] == algo]
        _draw.line(panel, mine, "nodes", "busiest_bytes", algo)
    for algo, label in (("dense", "_"), (next((a for a in algos if a != "dense"), "gtopk"), "lower bound")):
        mine = [row for row in rows if row["algo"] == algo]
        panel.plot(
            [row["nodes"] for row in mine],
            [row["bound_bytes"] for row in mine],
            color="0.3",
            linewidth=0.8,
            linestyle=":",
            label=label,
        )
    panel.set_yscale("log")
    panel.minorticks_off()
    _draw.nodes_axis(panel, (row["nodes"] for row in rows))
    panel.set_ylabel("bytes sent by the busiest node")
    _draw.legend(figure, [panel], 3)
    first = min(rows, key=lambda row: row["k"])  # dense has k = m
    _draw.note(
        figure,
        f"{_draw.model_name(first['model'])}, m = {first['parameters']:,}, k = {first['k']:,}; counted by "
        f"the collective "
        "in one training step. Lower bounds: 2 (P-1)/P m float32 for dense; a node's own k pairs for the "
        "sparse ones.",
    )
    return figure
