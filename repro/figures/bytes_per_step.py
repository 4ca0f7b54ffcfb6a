"""Draws the bytes that a node sends in a step, counted where they are sent, with a lower bound (not in the paper)."""

from typing import Any

from matplotlib.figure import Figure

from repro.comm.cost_formulas import message_bytes
from repro.comm.traffic import Round, bytes_sent, framing
from repro.compression.pair_sizes import WIRES
from repro.figures import _draw, _legend, _names
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Bytes that the busiest node sends in a step"
COMMAND = "repro run experiment=bytes_per_step"
SHADES = {"gaps": 1.0, "gaps-bf16": 0.75, "packed": 0.5}  # of other wire formats, the densest palest


def table(results: Results) -> list[Row]:
    """Returns the bytes of the busiest node, with and without headers (gloo's), and of the mean node in one step."""
    rows = []
    for group in results.groups("bytes_per_step"):
        for record in group.recorded[-1:]:
            wire = group.settings["algo"].get("wire", "pairs")
            all_rounds = [[Round(*done) for done in own] for own in record["schedule"]]
            sent = list(map(bytes_sent, all_rounds))
            at_socket = [own + sum(map(framing, done)) for own, done in zip(sent, all_rounds, strict=True)]
            rows.append(
                {
                    "source": "counted",
                    "model": group.model,
                    "algo": group.algo,
                    "wire": wire,
                    "nodes": group.nodes,
                    "parameters": record["parameters"],
                    "k": record["k"],
                    "busiest_bytes": max(sent),
                    "mean_bytes": sum(sent) / len(sent),
                    "socket_bytes": max(at_socket),
                    "bound_bytes": bound(group.algo, group.nodes, record["parameters"], record["k"], wire),
                }
            )
    return sorted(rows, key=lambda row: (row["model"], row["algo"], WIRES.index(row["wire"]), row["nodes"]))


def bound(algo: str, nodes: int, parameters: int, k: int, wire: str = "pairs") -> float:
    """Returns the bytes that a node must send at least.

    They are 2 (P-1)/P m float32 for a dense sum (Patarasuk and Yuan, 2009); with sparse vectors a node's own k pairs
    must leave it once.
    """
    if nodes == 1:
        return 0.0
    return 2 * (nodes - 1) / nodes * parameters * 4 if algo == "dense" else float(message_bytes(wire, k, parameters))


def draw(rows: list[Row]) -> Figure:
    figure, (panel,) = _draw.panels(1, height=2.3)
    by_name, bounds = _names.lines(rows, "model", "k"), dict[tuple[Any, ...], list[Row]]()
    for name, mine in by_name.items():
        algo, pairs = mine[0]["algo"], [row for row in mine if row["wire"] == "pairs"]
        _draw.line(panel, pairs, "nodes", "busiest_bytes", algo, label=name)
        for wire, shade in SHADES.items():
            own, label = [row for row in mine if row["wire"] == wire], f"{name}, {wire}"
            _draw.line(panel, own, "nodes", "busiest_bytes", algo, label=label, markerfacecolor="white", alpha=shade)
        if pairs:
            bounds.setdefault((algo == "dense", pairs[0]["model"], pairs[0]["k"]), pairs)
    for (dense, *_), mine in bounds.items():
        label = "_" if dense else "lower bound of 8-byte pairs"
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
    _legend.of_panels(figure, [panel])
    alike = [names for names in _coinciding(by_name) if len(names) > 1]
    sizes = sorted({(row["model"], row["parameters"], row["k"]) for row in rows if row["k"] < row["parameters"]})
    of = [f"{_draw.model_name(model)}, m = {m:,}, k = {k:,}" for model, m, k in sizes]
    _legend.note(
        figure,
        f"{'; '.join(of)}{'; ' if of else ''}counted by "
        "the collective in one training step, without the headers of gloo's messages. Hollow: the same pairs in other "
        "formats (algo.wire). Lower bounds: 2 (P-1)/P m float32 for dense; for the sparse ones a node's own k pairs "
        "of 8 bytes.",
        f"On one line: {'; '.join(' and '.join(names) for names in alike)}." if alike else "",
        _means([row for row in rows if row["wire"] == "pairs"]),
    )
    return figure


def _means(rows: list[Row]) -> str:
    """Says what the mean node sends on the most nodes with the algorithms whose nodes are unlike."""
    most = max((row["nodes"] for row in rows), default=0)
    told = [
        f"{_draw.algo_name(row['algo'])} {row['mean_bytes']:,.0f}"
        for row in rows
        if row["nodes"] == most and row["mean_bytes"] < row["busiest_bytes"]
    ]
    return f"On {most} nodes the mean node sends fewer: {', '.join(told)} bytes." if told else ""


def _coinciding(by_name: dict[str, list[Row]]) -> list[list[str]]:
    """Returns the names of the lines of pairs, those that have the same bytes at every number of nodes together."""
    lines: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for name, rows in by_name.items():
        line = tuple((row["nodes"], row["busiest_bytes"]) for row in rows if row["wire"] == "pairs")
        lines.setdefault(line, []).append(name)
    return list(lines.values())
