"""Draws the time of one aggregation against the number of nodes and of parameters: the paper's model, and the lab."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from repro.comm.cost_formulas import FORMS, PLOTTED_ALPHA_S, closed_form
from repro.comm.traffic import Link
from repro.density import entries
from repro.figures import _draw, _lab, _legend, _times
from repro.iteration_time import DILATED
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Time of one aggregation"
COMMAND = _lab.COLLECTIVES
WIDTH = "double"
ALIKE = 1.1  # times as many parameters are drawn as the same


def table(results: Results) -> list[Row]:
    """Returns the authors' two panels, as plotted and with their alpha, and what the lab measured with time dilated."""
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
        same = "nodes", got["algo"], got["nodes"], got["parameters"]
        about = {name: got[name] for name in ("dilation", "repeats")}
        rows.append(_row(*same, DILATED, got["seconds"]) | {"seconds_half_iqr": got["spread"]} | about)
        rows.append(_row(*same, "modelled", got["modelled"]))
    return rows


def _row(against: str, algo: str, nodes: int, parameters: int, source: str, seconds: float) -> Row:
    here = {"against": against, "algo": algo, "nodes": nodes, "parameters": parameters, "source": source}
    return here | {"seconds": seconds, "seconds_half_iqr": None, "dilation": None, "repeats": None}


def draw(rows: list[Row]) -> Figure:
    """Draws the paper's two panels, with the measured points that are near them, and one for each other size."""
    rows = [row | {"ms": 1e3 * row["seconds"]} for row in rows]
    measured = [row for row in rows if row["source"] == DILATED]
    left, right = (
        [row for row in rows if row["against"] == against and row["source"] in ("as plotted", "with alpha")]
        for against in ("nodes", "parameters")
    )
    size, nodes = left[0]["parameters"], right[0]["nodes"]
    near = [row for row in measured if size / ALIKE < row["parameters"] < size * ALIKE]
    others = sorted({row["parameters"] for row in measured} - {row["parameters"] for row in near})
    figure, axes, columns = _draw.grid(2 + len(others), height=1.75)
    keys = _model(axes[0], left, "nodes") | _model(axes[1], right, "parameters")
    keys |= _marks(axes[0], near, "nodes")
    keys |= _marks(axes[1], [row for row in measured if row["nodes"] == nodes], "parameters")
    _draw.nodes_axis(axes[0], (row["nodes"] for row in left + near))
    axes[0].set_title(f"m = {size / 1e6:.1f} M")
    axes[1].set_title(f"P = {nodes}")
    axes[1].set_xscale("log", base=2)
    axes[1].set_xlabel("parameters $m$")
    for panel, other in zip(axes[2:], others, strict=True):
        here = [row for row in rows if row["parameters"] == other]
        _lines(panel, [row for row in here if row["source"] == "modelled"])
        keys |= _marks(panel, [row for row in here if row["source"] == DILATED], "nodes")
        _draw.nodes_axis(panel, (row["nodes"] for row in here))
        panel.set_title(f"m = {other / 1e6:.3g} M")
    for panel in axes:
        _draw.plain_log(panel)
    for panel in axes[::columns]:
        panel.set_ylabel("milliseconds")
    _legend.draw(figure, keys)
    _legend.note(figure, *_notes(near, size, measured))
    return figure


def _model(panel: Axes, rows: list[Row], against: str) -> dict[str, Any]:
    """Draws the authors' curves in grey, and what their formulas give with their alpha; returns the keys of both."""
    keys: dict[str, Any] = {}
    grey: dict[str, Any] = {}
    for algo in FORMS:
        plotted, ours = (
            [row for row in rows if (row["algo"], row["source"]) == (algo, source)]
            for source in ("as plotted", "with alpha")
        )
        _draw.line(panel, ours, against, "ms", algo, marker="")
        style = _draw.look(algo)
        mark = Line2D([], [], color=style.colour, marker=style.marker, linestyle="", markersize=3.5)
        keys[_draw.algo_name(algo)] = panel.get_lines()[-1], mark  # those of the lab and of the authors too
        if plotted:
            _draw.published(panel, plotted, against, "ms", algo)
            grey["as plotted by the authors"] = _draw.source_key(_draw.PUBLISHED, linestyle="-", linewidth=0.9)
    return keys | grey


def _lines(panel: Axes, rows: list[Row]) -> None:
    """Draws the model of the messages that were measured."""
    for algo in _draw.algos_of(rows):
        points = sorted((row for row in rows if row["algo"] == algo), key=lambda row: row["nodes"])
        _draw.line(panel, points, "nodes", "ms", algo, marker="")


def _marks(panel: Axes, rows: list[Row], against: str) -> dict[str, Any]:
    """Draws what the lab measured as marks, with a bar of their spread to either side; returns their key."""
    keys = {}
    for algo in _draw.algos_of(rows):
        points = sorted((row for row in rows if row["algo"] == algo), key=lambda row: row[against])
        _draw.bars(panel, points, against, "ms", [1e3 * row["seconds_half_iqr"] for row in points], algo)
        _draw.line(panel, points, against, "ms", algo, linestyle="", markersize=3.5, label="_")
        keys["measured, time dilated"] = _draw.source_key(marker="o")
    return keys


def _notes(near: list[Row], size: int, measured: list[Row]) -> list[str]:
    sizes = sorted({row["parameters"] for row in near})
    return [
        "Lines: cost formulas with the authors' fit of 1 GbE, alpha 0.436 ms, density 0.001; where nothing is grey, "
        "our counted messages on it. Grey: as plotted by the authors, whose two sparse curves have 1 ms in place of "
        "alpha: log2 P ms of start-up for Top-k, 2 log2 P ms for gTop-k.",
        f"Marks: measured on real TCP at 1 Gbps with that alpha, {_times.slowed(measured)}; what "
        "gTop-k's merges and Top-k's sum take is left out. Links carry 8 ns per byte and headers, where the authors' "
        "fit has 9 ns. Bars: half the range between quartiles, to either side."
        if measured
        else f"Measured: not run ({COMMAND}).",
        f"Those beside m = {size / 1e6:.1f} M have {', '.join(f'{one / 1e6:.1f} M' for one in sizes)}." if near else "",
    ]
