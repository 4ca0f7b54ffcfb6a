"""Draws a rate against the number of nodes, one panel per model: published grey, simulated thin lines, ours in full."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from repro.figures import _coverage, _draw, _legend, _times
from repro.iteration_time import DILATED
from repro.report.summaries import Results
from repro.tables import Row

APART = 0.17  # doublings of P between the marks of two algorithms: many are within a percent of each other
OURS = {DILATED: "full", "measured": "none"}  # how their marks are filled
KEYS = {
    "published": "published",
    "simulated": "simulated",
    DILATED: "measured, time dilated",
    "measured": "measured on GPUs",
}


def table(results: Results, value: str) -> list[Row]:
    names = ("model", "algo", "nodes", "source", "network", "batch_per_node", value, "dilation", "repeats")
    return [{name: row[name] for name in names} for row in _times.beside_the_paper(results)]


def draw(rows: list[Row], value: str, label: str, unit: float, command: str, log: bool) -> Figure:
    rows = [row | {value: unit * row[value]} for row in rows]
    models = _draw.models_of(rows)
    figure, axes, columns = _draw.grid(len(models), height=1.65, sharey=not log)
    drawn: dict[tuple[str, str], Line2D] = {}  # by source and algorithm
    for panel, model in zip(axes, models, strict=True):
        drawn |= _panel(panel, [row for row in rows if row["model"] == model], value)
        panel.set_title(_draw.model_name(model))
        if log:
            _draw.plain_log(panel)
        else:
            panel.set_ylim(0, 109)
            panel.set_yticks(range(0, 101, 25))
    for panel in axes[::columns]:
        panel.set_ylabel(label)
    _legend.draw(figure, _keys(drawn, _draw.algos_of(rows)))
    _legend.note(figure, *_notes(rows, command))
    return figure


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
                _draw.line(panel, got, "nodes", value, algo, linestyle="", fillstyle=OURS[source], **style)
            drawn[source, algo] = panel.get_lines()[-1]
    _draw.nodes_axis(panel, _times.NODES)
    panel.set_xlim(_times.NODES[0] / 1.45, _times.NODES[-1] * 1.45)
    return drawn


def _keys(drawn: dict[tuple[str, str], Line2D], algos: Sequence[str]) -> dict[str, Any]:
    """Returns the legend: an algorithm's mark on its line, as in the panels; the sources by the last algorithm's."""
    keys: dict[str, Any] = {}
    for algo in algos:
        own = [drawn[source, algo] for source in ("simulated", *OURS) if (source, algo) in drawn]
        keys[_draw.algo_name(algo)] = tuple(own[:2]) or drawn["published", algo]
    for source, label in KEYS.items():
        shown = [drawn[source, algo] for algo in algos if (source, algo) in drawn]
        if shown:
            keys[label] = shown[min(2, len(shown) - 1)]  # gTop-k, where it is there
    return keys


def _notes(rows: list[Row], command: str) -> list[str]:
    measured = [row for row in rows if row["source"] == DILATED]
    cells = [row | _times.PLACE for row in measured]
    return [
        "Published: authors' script. Simulated: published compute and compression of one node, our messages on "
        "the published alpha and beta. Marks of one number of nodes stand side by side.",
        f"Measured: the same compute and compression slept, our messages on real TCP at 1 Gbps, "
        f"{_times.slowed(measured)} ({command})."
        if measured
        else "",
        _coverage.said(cells, "dilated", lambda cell: _times.PLACE.items() <= cell.items()),
        "LSTM: its batch is not published; 20, that of the authors' settings, is taken here."
        if any(row["model"] == "lstm" for row in rows)
        else "",
    ]
