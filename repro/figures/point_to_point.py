"""One-way time against message size between two nodes, with the fit of alpha and beta: ours and the
published one."""

from matplotlib.figure import Figure

from repro.figures import _draw, _lab
from repro.results import Results
from repro.tables import Row

TITLE = "Point-to-point time and its fit"
COMMAND = "repro bench network"
SIZES = [2**power for power in range(10, 25, 2)]  # bytes, where the fitted lines are drawn


def table(results: Results) -> list[Row]:
    wire = results.paper["network"]
    rows: list[Row] = [_row("published", size, wire["alpha_s"] + size * wire["beta_s_per_byte"]) for size in SIZES]
    got = _lab.network(results)
    if got:
        rows += [_row("fit", size, got["alpha_s"] + size * got["beta_s_per_byte"]) for size in SIZES]
        rows += [_row("measured", point["bytes"], point["seconds"], point.get("spread_s")) for point in got["points"]]
    return rows


def _row(source: str, size: int, seconds: float, spread: float | None = None) -> Row:
    return {"source": source, "bytes": size, "seconds": seconds, "seconds_std": spread}


def draw(rows: list[Row]) -> Figure:
    figure, (panel,) = _draw.panels(1, height=2.2)
    parts = {source: [row for row in rows if row["source"] == source] for source in ("published", "fit", "measured")}
    _draw.published(panel, parts["published"], "bytes", "seconds", "dense", marker="", label="published fit")
    _draw.line(panel, parts["fit"], "bytes", "seconds", "gtopk", marker="", label="our fit")
    _draw.line(panel, parts["measured"], "bytes", "seconds", "gtopk", linestyle="", label="measured")
    panel.set(xscale="log", yscale="log", xlabel="message (bytes)", ylabel="one-way time (s)")
    panel.minorticks_off()
    _draw.legend(figure, [panel])
    _draw.note(
        figure,
        f"Published: {_formula(parts['published'])}.",
        f"Ours: {_formula(parts['fit'])}, on links of the lab shaped to 1 Gbps."
        if parts["fit"]
        else f"Ours: not run ({COMMAND}).",
    )
    return figure


def _formula(rows: list[Row]) -> str:
    """alpha and beta, back from two points of their line."""
    first, last = rows[0], rows[-1]
    beta = (last["seconds"] - first["seconds"]) / (last["bytes"] - first["bytes"])
    return f"alpha {1e3 * (first['seconds'] - beta * first['bytes']):.3g} ms, beta {1e9 * beta:.3g} ns per byte"
