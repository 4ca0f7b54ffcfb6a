"""Draws a rate against the number of nodes, one panel per model: published grey, simulated thin lines, ours in full."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from repro.figures import _coverage, _draw, _legend, _times
from repro.iteration_time import DILATED
from repro.report.summaries import Results
from repro.tables import Row

APART = 0.08  # doublings of P between the marks of two algorithms: the outermost are a mark's width from their P
FULL, SMALL = 109.0, 25.0  # percent: where a panel's axis ends; below the second are panels with an end of their own
OURS = {DILATED: "full", "measured": "none"}  # how their marks are filled
KEYS: dict[str, tuple[str, dict[str, Any]]] = {  # what stands in the legend for a source, and how
    "published": ("published, in grey", {"colour": _draw.PUBLISHED, "linestyle": "-", "linewidth": 0.9}),
    "simulated": ("simulated, in colour", {"linestyle": "-", "linewidth": 0.8}),
    DILATED: ("measured, time dilated", {"marker": "o"}),
    "measured": ("measured on GPUs", {"marker": "o", "fillstyle": "none"}),
}


def table(results: Results, value: str) -> list[Row]:
    names = ("model", "algo", "nodes", "source", "network", "batch_per_node", value, "dilation", "repeats")
    return [{name: row[name] for name in names} for row in _times.beside_the_paper(results)]


def draw(rows: list[Row], value: str, label: str, unit: float, command: str, log: bool) -> Figure:
    rows = [row | {value: unit * row[value]} for row in rows]
    models = _draw.models_of(rows)
    figure, axes, columns = _draw.grid(len(models), height=1.65)
    drawn: dict[tuple[str, str], Line2D] = {}  # by source and algorithm
    ends = [FULL]
    for panel, model in zip(axes, models, strict=True):
        of_model = [row for row in rows if row["model"] == model]
        drawn |= _panel(panel, of_model, value)
        panel.set_title(_draw.model_name(model))
        if log:
            _draw.plain_log(panel)
        else:
            ends.append(_percents(panel, max(row[value] for row in of_model)))
            alike = ends[-2:] == [FULL, FULL] and not _draw.at(panel).is_first_col()
            panel.tick_params(labelleft=not alike)
    for panel in axes[::columns]:
        panel.set_ylabel(label)
    _legend.draw(figure, _keys(drawn, _draw.algos_of(rows)))
    _legend.note(figure, *_notes(rows, command))
    return figure


def _percents(panel: Axes, most: float) -> float:
    """Sets an axis from 0 to 100 %, or to where the data end if that is near 0; returns its end."""
    end = FULL if most >= SMALL else math.ceil(FULL / 100 * most)
    panel.set_ylim(0, end)
    if end == FULL:
        panel.set_yticks(range(0, 101, 25))
    else:
        panel.set_title(f"{panel.get_title()}, axis to {end} %")
    return end


def _panel(panel: Axes, rows: list[Row], value: str) -> dict[tuple[str, str], Line2D]:
    """Draws the rates of one model; returns the lines by source and algorithm."""
    algos, drawn = _draw.algos_of(rows), {}
    for place, algo in enumerate(algos):
        for source in KEYS:
            got = [row for row in rows if (row["algo"], row["source"]) == (algo, source)]
            if not got:
                continue
            got.sort(key=lambda row: row["nodes"])
            style: dict[str, Any] = {"markersize": 3.5, "label": "_"}
            if source == "published":
                _draw.published(panel, got, "nodes", value, algo)
            elif source == "simulated":
                _draw.line(panel, got, "nodes", value, algo, **style | {"marker": "", "linewidth": 0.8})
            else:
                shift = 2 ** (APART * (place - (len(algos) - 1) / 2))
                got = [row | {"nodes": shift * row["nodes"]} for row in got]
                style |= {"fillstyle": OURS[source], "linestyle": ""}
                if OURS[source] == "full":
                    style |= {"markersize": 4.2, "markeredgecolor": "white", "markeredgewidth": 0.3}  # marks overlap
                _draw.line(panel, got, "nodes", value, algo, **style)
            drawn[source, algo] = panel.get_lines()[-1]
    _draw.nodes_axis(panel, _times.NODES)
    panel.set_xlim(_times.NODES[0] / 1.45, _times.NODES[-1] * 1.45)
    return drawn


def _keys(drawn: dict[tuple[str, str], Line2D], algos: Sequence[str]) -> dict[str, Any]:
    """Returns the legend: an algorithm's mark on its line, as in the panels, and the sources in no algorithm's look."""
    keys: dict[str, Any] = {}
    for algo in algos:
        own = [drawn[source, algo] for source in ("simulated", *OURS) if (source, algo) in drawn]
        keys[_draw.algo_name(algo)] = tuple(own[:2]) or drawn["published", algo]
    sources = {source for source, _ in drawn}
    return keys | {label: _draw.source_key(**look) for source, (label, look) in KEYS.items() if source in sources}


def _notes(rows: list[Row], command: str) -> list[str]:
    measured = [row for row in rows if row["source"] == DILATED]
    efficiency = any("efficiency" in row for row in rows)
    cells = [row | _times.PLACE for row in measured]
    return [
        "Scaling efficiency: throughput per node over that of a single node, which does not compress." * efficiency,
        "Published: authors' script. Simulated: published compute of one node, the published compression, which is "
        "gTop-k's and stands for every sparse algorithm's, and our messages on the published alpha and beta. Marks of "
        "one number of nodes stand a little apart.",
        f"Measured: the same compute and compression slept, our messages on real TCP at 1 Gbps, "
        f"{_times.slowed(measured)} ({command})."
        if measured
        else "",
        _coverage.said(cells, "dilated", lambda cell: _times.PLACE.items() <= cell.items()),
        "LSTM: its batch is not published; 20, that of the authors' settings, is taken here."
        if any(row["model"] == "lstm" for row in rows)
        else "",
        _times.without_compress(rows),
    ]
