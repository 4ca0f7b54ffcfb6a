"""Seconds of one aggregation against the number of nodes and against the number of parameters."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from repro import network
from repro.figures import _draw, _lab
from repro.results import Results
from repro.tables import Row

TITLE = "Time of one aggregation"
COMMAND = "repro bench collectives"
ALGOS = ("dense", "topk", "gtopk", "gtopk_butterfly")
PLOTTED_ALPHA_S = 1e-3  # the script's start-up term of the two sparse curves is log2 P, as if alpha were 1 ms


def table(results: Results) -> list[Row]:
    """The authors' two panels as plotted and with their alpha, and what the lab measured at other m."""
    wire, shape = results.paper["network"], results.paper["model_figure"]
    left, right = shape["left"], shape["right"]
    points = [("nodes", nodes, left["m"], left["density"]) for nodes in left["nodes"]]
    points += [("parameters", right["nodes"], 2**log, right["density"]) for log in right["m_log2"]]
    rows: list[Row] = []
    for against, nodes, m, density in points:
        for algo in ALGOS:
            for source, alpha in (("as plotted", PLOTTED_ALPHA_S), ("with alpha", wire["alpha_s"])):
                if source == "as plotted" and algo == "gtopk_butterfly":
                    continue
                link = network.Link(wire["alpha_s"] if algo == "dense" else alpha, wire["beta_s_per_byte"])
                rows.append(_row(against, algo, nodes, m, source, seconds(algo, nodes, m, density, link)))
    for got in _lab.collectives(results):
        for source, value, spread in (
            ("measured", got["seconds"], got["spread"]),
            ("modelled", got["modelled"], None),
        ):
            rows.append(_row("nodes", got["algo"], got["nodes"], got["parameters"], source, value, spread))
    return rows


def seconds(algo: str, nodes: int, parameters: int, density: float, link: network.Link) -> float:
    k = max(1, math.floor(density * parameters))
    if algo == "dense":
        return network.dense_ring(nodes, parameters, link)
    form = {
        "topk": network.topk_allgather,
        "gtopk": network.gtopk_tree_and_broadcast,
        "gtopk_butterfly": network.gtopk_butterfly,
    }
    return form[algo](nodes, k, link)


def _row(
    against: str,
    algo: str,
    nodes: int,
    parameters: int,
    source: str,
    value: float,
    spread: float | None = None,
) -> Row:
    return {
        "against": against,
        "algo": algo,
        "nodes": nodes,
        "parameters": parameters,
        "source": source,
        "seconds": value,
        "seconds_std": spread,
    }


def draw(rows: list[Row]) -> Figure:
    measured = [row for row in rows if row["source"] == "measured"]
    sizes = sorted({row["parameters"] for row in measured})
    figure, axes = _draw.panels(1 + -(-len(sizes) // 2), 2, 1.75)
    for panel, against in zip(axes, ("nodes", "parameters"), strict=False):
        mine = [row for row in rows if row["against"] == against and row["source"] in ("as plotted", "with alpha")]
        for algo in ALGOS:
            own = [row for row in mine if row["algo"] == algo]
            _draw.published(panel, [row for row in own if row["source"] == "as plotted"], against, "seconds", algo)
            _draw.line(
                panel,
                [row for row in own if row["source"] == "with alpha"],
                against,
                "seconds",
                algo,
                markersize=3,
            )
        if against == "nodes":
            _draw.nodes_axis(panel, (row["nodes"] for row in mine))
            panel.set_title(f"model, m = {mine[0]['parameters'] / 1e6:.1f} M")
        else:
            panel.set_xscale("log", base=2)
            panel.set_xlabel("parameters $m$")
            panel.set_title(f"model, P = {mine[0]['nodes']}")
    for panel, size in zip(axes[2:], sizes, strict=False):
        _measured(
            panel,
            [row for row in rows if row["parameters"] == size and row["source"] in ("measured", "modelled")],
        )
    for panel in axes[: 2 + len(sizes)]:
        panel.set_yscale("log")
        panel.minorticks_off()
    for panel in axes[::2]:
        panel.set_ylabel("seconds")
    for panel in axes[2 + len(sizes) :]:
        panel.set_axis_off()
    extra = [Line2D([], [], color=_draw.PUBLISHED, linewidth=0.9, label="as plotted by the authors")]
    handles = [
        Line2D([], [], color=s.colour, linestyle=s.dash, marker=s.marker, label=s.label)
        for s in map(_draw.look, _draw.algos_of(rows))
    ]
    figure.legend(handles=handles + extra, loc="outside upper center", ncols=3)
    _draw.note(
        figure,
        "Model: the authors' cost formulas with their fit of 1 GbE. As plotted: their two sparse curves "
        "count log2 P ms of start-up; "
        "coloured: with their alpha of 0.436 ms. Density 0.001.",
        "Lab: one namespace a node, links shaped to 1 Gbps; markers measured, thin lines the model. "
        "Above the model with more nodes: this machine's cores hand on all nodes' packets in turn (README)."
        if measured
        else f"Measured: not run ({COMMAND}).",
    )
    return figure


def _measured(panel: Axes, rows: list[Row]) -> None:
    """Markers with their spread: the lab. Thin lines: the model with the lab's own alpha and beta."""
    for algo in _draw.algos_of(rows):
        own = sorted((row for row in rows if row["algo"] == algo), key=lambda row: row["nodes"])
        _draw.line(panel, [row for row in own if row["source"] == "measured"], "nodes", "seconds", algo, linestyle="")
        _draw.line(
            panel,
            [row for row in own if row["source"] == "modelled"],
            "nodes",
            "seconds",
            algo,
            marker="",
            linewidth=0.8,
            label="_",
        )
    _draw.nodes_axis(panel, (row["nodes"] for row in rows))
    panel.set_title(f"lab, m = {rows[0]['parameters'] / 1e6:.3g} M")
