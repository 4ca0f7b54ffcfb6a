"""Draws where the time of a gTop-k iteration on 32 nodes goes: compute, compress, communicate."""

from typing import Any

from matplotlib.figure import Figure

from repro.figures import _draw, _legend, _times
from repro.iteration_time import DILATED, PARTS, IterationTime, is_measured
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Time of a gTop-k iteration on 32 nodes"
COMMAND = "repro run experiment=dilated"
NODES = 32
COLOURS = {
    "compute_s": ("#0072B2", "0.35"),
    "compress_s": ("#E69F00", "0.6"),
    "communicate_s": ("#009E73", "0.82"),
}
HATCHES = {"compute_s": "", "compress_s": "//////", "communicate_s": ""}


def table(results: Results) -> list[Row]:
    """Returns three parts that add up to the iteration: communicate_s is only what the iteration waits for."""
    rows: list[Row] = []
    for model, cells in results.paper["breakdown_gtopk_32_nodes"].items():
        if model in _draw.PAPER:
            time = IterationTime(*(cells[part.removesuffix("_s")] for part in PARTS))
            rows.append(_row(model, "gtopk", "published", _times.PUBLISHED_ON, cells["batch_per_node"], time))
    for row in _times.beside_the_paper(results):
        if row["nodes"] == NODES and row["algo"] in ("gtopk", "gtopk_butterfly") and row["source"] != "published":
            same = (row["model"], row["algo"], row["source"], row["network"], row["batch_per_node"])
            rows.append(_row(*same, IterationTime.of(row), row["dilation"], row["repeats"]))
    order = _draw.models_of(rows)
    return sorted(rows, key=lambda row: order.index(row["model"]))


def _row(
    model: str,
    algo: str,
    source: str,
    wire: str,
    batch: int,
    time: IterationTime,
    dilation: float | None = None,
    repeats: int | None = None,
) -> Row:
    return {
        "model": model,
        "algo": algo,
        "source": source,
        "network": wire,
        "batch_per_node": batch,
        **time.parts(),
        "communicate_s": time.open_s,
        "dilation": dilation,
        "repeats": repeats,
    }


def draw(rows: list[Row]) -> Figure:
    """Draws each iteration as one bar, in shares of its own time; its seconds stand at the end."""
    models = _draw.models_of(rows)
    counts = [sum(row["model"] == model for row in rows) for model in models]
    figure = _draw.Drawing(figsize=(_draw.width(), 0.17 * len(rows) + 0.22 * len(models) + 0.65), layout="constrained")
    axes = figure.subplots(len(models), 1, sharex=True, height_ratios=counts, squeeze=False)[:, 0]
    keys: dict[str, dict[bool, Any]] = {part[:-2]: {} for part in PARTS}  # in colour, and grey
    for panel, model in zip(axes, models, strict=True):
        bars = [row for row in rows if row["model"] == model]
        for place, row in enumerate(bars):
            total, left = IterationTime.of(row).total, 0.0
            for part in PARTS:
                share = 100 * row[part] / total
                colour = COLOURS[part][row["source"] == "published"]
                bar = panel.barh(
                    place,
                    share,
                    left=left,
                    height=0.7,
                    color=colour,
                    hatch=HATCHES[part],
                    edgecolor="white",
                    linewidth=0.4,
                )
                keys[part[:-2]][row["source"] == "published"] = bar[0]
                left += share
            panel.text(101, place, f"{total:.3g} s", va="center", fontsize=6.5)
        panel.set_yticks(range(len(bars)), [_label(row) for row in bars], fontsize=6.5)
        panel.set(ylim=(len(bars) - 0.5, -0.5), xlim=(0, 100))
        panel.grid(False)
        panel.set_title(_draw.model_name(model), loc="left", pad=2)
    axes[-1].set_xlabel("share of the iteration (%)")
    _legend.draw(figure, {part: [bars[grey] for grey in sorted(bars)] for part, bars in keys.items()})
    measured = [row for row in rows if row["source"] == DILATED]
    _legend.note(
        figure,
        "Published (grey): authors' script; its communication includes copies, merges and barriers. "
        "Simulated: published compute and compression, our messages on the published alpha and beta.",
        f"Measured, dilated: the same compute and compression slept, our messages on real TCP at 1 Gbps, "
        f"{_times.slowed(measured)} ({COMMAND})."
        if measured
        else f"Measured, dilated: not run ({COMMAND}).",
    )
    return figure


def _label(row: Row) -> str:
    what = "butterfly" if row["algo"] == "gtopk_butterfly" else "tree"
    source = "measured on GPUs" if is_measured(row["source"]) and row["source"] != DILATED else row["source"]
    return "published" if source == "published" else f"{what}, {source}"
