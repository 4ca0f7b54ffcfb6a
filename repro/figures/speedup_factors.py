"""Draws the speed-ups of gTop-k on 32 nodes and 1 Gbps over dense and over Top-k: published, measured and simulated."""

from typing import Any

from matplotlib.figure import Figure

from repro.figures import _draw, _legend, _times, speedups
from repro.iteration_time import DILATED
from repro.report import intervals
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Speed-ups of gTop-k on 32 nodes"
COMMAND = speedups.COMMAND
ALSO = speedups.ALSO
WIDTH = "double"
LOOKS: dict[str, dict[str, Any]] = {
    "published": {"color": _draw.PUBLISHED, "marker": "o"},
    DILATED: {"color": _draw.LOOKS["gtopk"].colour, "marker": _draw.LOOKS["gtopk"].marker},
    "simulated": {"color": _draw.INK, "marker": "|", "markersize": 8},
}
SHIFTS = {"published": -0.25, DILATED: 0.0, "simulated": 0.25}  # one under the other


def table(results: Results) -> list[Row]:
    """Returns one row for each network, source and algorithm that gTop-k is held against; intervals where repeated."""
    dilations = {
        (row["model"], row["source"], row["algo"]): row["dilation"]
        for row in _times.beside_the_paper(results)
        if row["nodes"] == speedups.NODES
    }
    rows = []
    for (model, source, other), factor in speedups.factors(results).items():
        known = factor.std is not None
        rows.append({
            "model": model, "nodes": speedups.NODES, "source": source, "over": other, "factor": factor.mean,
            "low": factor.low if known else None, "high": factor.high if known else None,
            "dilation": dilations[model, source, "gtopk"], "dilation_over": dilations[model, source, other],
            "repeats": factor.n if known else None,
        })  # fmt: skip
    return rows


def draw(rows: list[Row]) -> Figure:
    figure, panels, _ = _draw.grid(2, columns=1, height=2.1)
    models = _draw.models_of(rows)
    sources = [source for source in LOOKS if any(row["source"] == source for row in rows)]
    for panel, other in zip(panels, speedups.OVER, strict=True):
        for source in sources:
            mine = [row for row in rows if (row["source"], row["over"]) == (source, other)]
            places = [models.index(row["model"]) + SHIFTS[source] for row in mine]
            for row, place in zip(mine, places, strict=True):
                if row["low"] is not None:
                    panel.hlines(place, row["low"], row["high"], colors=LOOKS[source]["color"], linewidth=0.8)
            style: dict[str, Any] = {"linestyle": "", "markersize": 5, "label": source} | LOOKS[source]
            panel.plot([row["factor"] for row in mine], places, **style)
        panel.axvline(1, color="0.7", linewidth=0.8, zorder=1)
        panel.set_xscale("log")
        panel.set_xlabel(f"times as fast as {_draw.algo_name(other)}")
        panel.set_yticks(range(len(models)), [_draw.model_name(model) for model in models])
        panel.set_ylim(len(models) - 0.5, -0.5)
        _draw.plain_log(panel, "x")
    _legend.of_panels(figure, panels)
    _legend.note(figure, *_notes(rows))
    return figure


def _notes(rows: list[Row]) -> list[str]:
    measured = [row for row in rows if row["source"] == DILATED]
    others = [row | {"dilation": row["dilation_over"]} for row in measured]  # each was slowed as its links needed
    timed = {row["model"] for row in measured}
    alone = [_draw.model_name(model) for model in _draw.models_of(rows) if model not in timed]
    return [
        "Published: by the rates of the authors' script. Measured: the published compute and compression slept, our "
        f"messages on real TCP at 1 Gbps, {_times.slowed([*measured, *others])} ({COMMAND}); {intervals.LEVEL} "
        "intervals, of repeats alone, are narrower than the marks. Simulated: the same on the published alpha and beta."
        if measured
        else "Published: by the rates of the authors' script.",
        f"{', '.join(alone)}: none of ours, as no compression of it is published." if measured and alone else "",
    ]
