"""Draws one-way time against message size between two nodes, with our fit of alpha and beta and the published one."""

from matplotlib.figure import Figure

from repro.figures import _draw, _lab, _legend, _times
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Point-to-point time and its fit"
COMMAND = "repro bench network"
SIZES = [2**power for power in range(6, 25)]  # bytes, where the fitted lines are drawn


def table(results: Results) -> list[Row]:
    wire = results.paper["network"]
    rows: list[Row] = [_row("published", size, wire["alpha_s"] + size * wire["beta_s_per_byte"]) for size in SIZES]
    got = _lab.network(results)
    if got:
        rows += [_row("fit", size, got["alpha_s"] + size * got["beta_s_per_byte"]) for size in SIZES]
        rows += [
            _row("measured", point["bytes"], point["seconds"], point.get("spread_s"), point["repeats"], point["fitted"])
            for point in got["points"]
        ]
    return rows


def _row(
    source: str,
    size: int,
    seconds: float,
    spread: float | None = None,
    repeats: int | None = None,
    fitted: bool | None = None,
) -> Row:
    return {
        "source": source, "bytes": size, "seconds": seconds, "seconds_half_iqr": spread, "repeats": repeats,
        "fitted": fitted,
    }  # fmt: skip


def draw(rows: list[Row]) -> Figure:
    figure, (panel,) = _draw.panels(1, height=2.2)
    parts = {source: [row for row in rows if row["source"] == source] for source in ("published", "fit", "measured")}
    _draw.published(panel, parts["published"], "bytes", "seconds", "dense", marker="", label="published fit")
    _draw.line(panel, parts["fit"], "bytes", "seconds", "gtopk", marker="", label="our fit")
    fitted, others = ([row for row in parts["measured"] if row["fitted"] == whether] for whether in (True, False))
    _draw.line(panel, fitted, "bytes", "seconds", "gtopk", linestyle="", label="measured")
    hollow = {"linestyle": "", "fillstyle": "none", "label": "measured, not in the fit"}
    _draw.line(panel, others, "bytes", "seconds", "gtopk", **hollow)
    spread = [row["seconds_half_iqr"] for row in parts["measured"]]
    _draw.bars(panel, parts["measured"], "bytes", "seconds", spread, "gtopk")
    panel.set(xscale="log", yscale="log", xlabel="message (bytes)", ylabel="one-way time (s)")
    panel.minorticks_off()
    _legend.of_panels(figure, [panel])
    _legend.note(
        figure,
        f"Published: {_formula(parts['published'])}.",
        f"Ours: {_formula(parts['fit'])}, on links of the lab shaped to 1 Gbps; medians of n = "
        f"{_times.span(parts['measured'], 'repeats')}, bars: half the range between quartiles, to either side."
        if parts["fit"]
        else f"Ours: not run ({COMMAND}).",
        "The lab's shaper lets the first bytes of a message pass at once: those that are not in the fit are faster by "
        "that than their link."
        if others
        else "",
    )
    return figure


def _formula(rows: list[Row]) -> str:
    """Returns alpha and beta as text, from two points of their line."""
    first, last = rows[0], rows[-1]
    beta = (last["seconds"] - first["seconds"]) / (last["bytes"] - first["bytes"])
    return f"alpha {1e3 * (first['seconds'] - beta * first['bytes']):.3g} ms, beta {1e9 * beta:.3g} ns per byte"
