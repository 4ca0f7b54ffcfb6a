"""Draws the seconds of one aggregation against the number of nodes and against the number of parameters."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from repro.comm.cost_formulas import FORMS, PLOTTED_ALPHA_S, closed_form
from repro.comm.traffic import Link
from repro.density import entries
from repro.figures import _draw, _lab, _legend
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Time of one aggregation"
COMMAND = "repro bench collectives"
WIDTH = "double"


def table(results: Results) -> list[Row]:
    """Returns the authors' two panels, as plotted and with their alpha, and what the lab measured at other m."""
    wire, shape = results.paper["network"], results.paper["model_figure"]
    left, right = shape["left"], shape["right"]
    points = [("nodes", nodes, left["m"], left["density"]) for nodes in left["nodes"]]
    points += [("parameters", right["nodes"], 2**log, right["density"]) for log in right["m_log2"]]
    rows: list[Row] = []
    for against, nodes, m, density in points:
        for algo in FORMS:
            for source, alpha in (("as plotted", PLOTTED_ALPHA_S), ("with alpha", wire["alpha_s"])):
                if source == "as plotted" and algo == "gtopk_butterfly":
                    continue
                link = Link(wire["alpha_s"] if algo == "dense" else alpha, wire["beta_s_per_byte"])
                seconds = closed_form(algo, nodes, m, entries(density, m), link)
                rows.append(_row(against, algo, nodes, m, source, seconds))
    for got in _lab.collectives(results):
        for source, value, spread in (
            ("measured", got["seconds"], got["spread"]),
            ("modelled", got["modelled"], None),
        ):
            rows.append(_row("nodes", got["algo"], got["nodes"], got["parameters"], source, value, spread))
    return rows


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
    figure, axes, columns = _draw.grid(2 + len(sizes), height=1.75)
    keys: dict[str, Any] = {}
    grey: dict[str, Any] = {}
    lab: dict[str, Any] = {}
    for panel, against in zip(axes, ("nodes", "parameters"), strict=False):
        mine = [row for row in rows if row["against"] == against and row["source"] in ("as plotted", "with alpha")]
        for algo in FORMS:
            of_algo = [row for row in mine if row["algo"] == algo]
            plotted, ours = ([row for row in of_algo if row["source"] == s] for s in ("as plotted", "with alpha"))
            _draw.line(panel, ours, against, "seconds", algo, markersize=3)
            keys.setdefault(_draw.algo_name(algo), panel.get_lines()[-1])
            if plotted:
                _draw.published(panel, plotted, against, "seconds", algo)
                grey["as plotted by the authors"] = panel.get_lines()[-1]
        if against == "nodes":
            _draw.nodes_axis(panel, (row["nodes"] for row in mine))
            panel.set_title(f"model, m = {mine[0]['parameters'] / 1e6:.1f} M")
        else:
            panel.set_xscale("log", base=2)
            panel.set_xlabel("parameters $m$")
            panel.set_title(f"model, P = {mine[0]['nodes']}")
    for panel, size in zip(axes[2:], sizes, strict=False):
        of_size = [row for row in rows if row["parameters"] == size and row["source"] in ("measured", "modelled")]
        lab |= _measured(panel, of_size)
    for panel in axes:
        panel.set_yscale("log")
        panel.minorticks_off()
    for panel in axes[::columns]:
        panel.set_ylabel("seconds")
    _legend.draw(figure, keys | grey | lab)
    _legend.note(
        figure,
        "Model: the authors' cost formulas with their fit of 1 GbE. As plotted: their two sparse curves "
        "count log2 P ms of start-up; "
        "coloured: with their alpha of 0.436 ms. Density 0.001.",
        "Lab: one namespace a node, links shaped to 1 Gbps; markers measured, thin lines the model. "
        "Above the model with more nodes: this machine's cores hand on all nodes' packets in turn (docs/time.md)."
        if measured
        else f"Measured: not run ({COMMAND}).",
    )
    return figure


def _measured(panel: Axes, rows: list[Row]) -> dict[str, Any]:
    """Draws the lab as markers with their spread, and the model with the lab's alpha and beta as thin lines.

    Returns the keys of both.
    """
    keys = {}
    for algo in _draw.algos_of(rows):
        points = sorted((row for row in rows if row["algo"] == algo), key=lambda row: row["nodes"])
        measured, modelled = ([row for row in points if row["source"] == s] for s in ("measured", "modelled"))
        _draw.line(panel, measured, "nodes", "seconds", algo, linestyle="", markersize=3, label="_")
        keys["lab, measured"] = panel.get_lines()[-1]
        _draw.line(panel, modelled, "nodes", "seconds", algo, marker="", linewidth=0.8, label="_")
        keys["lab, modelled"] = panel.get_lines()[-1]
    _draw.nodes_axis(panel, (row["nodes"] for row in rows))
    panel.set_title(f"lab, m = {rows[0]['parameters'] / 1e6:.3g} M")
    return keys
