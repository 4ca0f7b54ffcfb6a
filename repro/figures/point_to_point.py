"""Draws one-way time against message size between two nodes, with our fit of alpha and beta and the published one."""

from matplotlib.figure import Figure

from repro.figures import _draw, _lab, _legend, _times
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Point-to-point time and its fit"
COMMAND = "repro bench network"
MISFIT = 1.3  # from which a reader must know of it
SIZES = [2**power for power in range(6, 25, 2)]  # bytes, where the fitted lines are drawn


def table(results: Results) -> list[Row]:
    wire = results.paper["network"]
    rows: list[Row] = [_row("published", size, wire["alpha_s"] + size * wire["beta_s_per_byte"]) for size in SIZES]
    got = _lab.network(results)
    if got:
        rows += [_row("fit", size, got["alpha_s"] + size * got["beta_s_per_byte"]) for size in SIZES]
        rows += [
            _row("measured", point["bytes"], point["seconds"], point.get("spread_s"), point["repeats"])
            for point in got["points"]
        ]
    return rows


def _row(source: str, size: int, seconds: float, spread: float | None = None, repeats: int | None = None) -> Row:
    return {"source": source, "bytes": size, "seconds": seconds, "seconds_half_iqr": spread, "repeats": repeats}


def draw(rows: list[Row]) -> Figure:
    figure, (panel,) = _draw.panels(1, height=2.2)
    parts = {source: [row for row in rows if row["source"] == source] for source in ("published", "fit", "measured")}
    _draw.published(panel, parts["published"], "bytes", "seconds", "dense", marker="", label="published fit")
    _draw.line(panel, parts["fit"], "bytes", "seconds", "gtopk", marker="", label="our fit")
    _draw.line(panel, parts["measured"], "bytes", "seconds", "gtopk", linestyle="", label="measured")
    spread = [row["seconds_half_iqr"] for row in parts["measured"]]
    _draw.bars(panel, parts["measured"], "bytes", "seconds", spread, "gtopk")
    panel.set(xscale="log", yscale="log", xlabel="message (bytes)", ylabel="one-way time (s)")
    panel.minorticks_off()
    _legend.of_panels(figure, [panel])
    worst = worst_fitted(parts["measured"], parts["fit"])
    if worst is not None:
        size, factor = worst
        panel.annotate(
            f"the fit: {factor:.1f} × as long",
            (size, next(row["seconds"] for row in parts["measured"] if row["bytes"] == size)),
            xytext=(22, -8), textcoords="offset points", fontsize=7, va="center",
            arrowprops={"arrowstyle": "-", "linewidth": 0.6, "color": _draw.INK, "shrinkB": 3},
        )  # fmt: skip
    _legend.note(
        figure,
        f"Published: {_formula(parts['published'])}.",
        f"Ours: {_formula(parts['fit'])}, on links of the lab shaped to 1 Gbps; medians of n = "
        f"{_times.span(parts['measured'], 'repeats')}, bars: half the range between quartiles, to either side."
        if parts["fit"]
        else f"Ours: not run ({COMMAND}).",
        f"Around {worst[0] // 1024} kB our fit says {worst[1]:.1f} times what was measured: one alpha and one beta "
        "cannot follow all sizes, and modelled times of messages of about this size are as much too long."
        if worst
        else "",
    )
    return figure


def worst_fitted(measured: list[Row], fit: list[Row]) -> tuple[int, float] | None:
    """Returns the size at which the fit is most above what was measured, and its factor; None if under MISFIT."""
    line = {row["bytes"]: row["seconds"] for row in fit}
    factors = {row["bytes"]: line[row["bytes"]] / row["seconds"] for row in measured if row["bytes"] in line}
    size = max(factors, key=lambda size: factors[size], default=0)
    return (size, factors[size]) if factors and factors[size] >= MISFIT else None


def _formula(rows: list[Row]) -> str:
    """Returns alpha and beta as text, from two points of their line."""
    first, last = rows[0], rows[-1]
    beta = (last["seconds"] - first["seconds"]) / (last["bytes"] - first["bytes"])
    return f"alpha {1e3 * (first['seconds'] - beta * first['bytes']):.3g} ms, beta {1e9 * beta:.3g} ns per byte"
