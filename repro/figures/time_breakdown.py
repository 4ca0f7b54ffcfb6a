"""Draws where the time of an iteration on 32 nodes goes, of gTop-k and dense: compute, compress, communicate."""

import math
from typing import Any

from matplotlib.figure import Figure

from repro.figures import _draw, _legend, _times
from repro.iteration_time import DILATED, FIELDS, PARTS, IterationTime, is_measured
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Shares of an iteration's time on 32 nodes"
WIDTH = "double"
COMMAND = "repro run experiment=dilated"
ALSO = (_times.SIMULATE,)
NODES = 32
SHOWN = {"gtopk": "gTop-k", "gtopk_butterfly": "butterfly", "dense": "dense"}
ALIKE = 0.1  # of the other: how far apart two compute times may be before a note names both
COLUMNS = ("model", "algo", "overlap", "source", "network", "batch_per_node", *FIELDS, "dilation", "repeats")
COLOURS = {
    "compute_s": ("#0072B2", "0.35"),
    "compress_s": ("#E69F00", "0.6"),
    "communicate_s": ("#009E73", "0.82"),
}
HIDDEN = "#CC79A7"  # what is sent behind compute
HATCHES = {"compute_s": "", "compress_s": "//////", "communicate_s": "....."}


def table(results: Results) -> list[Row]:
    """Returns three parts that add up to the iteration: communicate_s is only what the iteration waits for."""
    rows: list[Row] = []
    for model, cells in results.paper["breakdown_gtopk_32_nodes"].items():
        if model in _draw.PAPER:
            time = IterationTime(*(cells[part.removesuffix("_s")] for part in PARTS))
            same = (model, "gtopk", NODES, "published", _times.PUBLISHED_ON, cells["batch_per_node"])
            rows.append(_times.as_row(*same, time))
    rows += [row for row in _times.beside_the_paper(results) if row["source"] != "published"]
    rows += _times.on_the_papers_node(results, overlap="on")
    rows += [row | {"overlap": "on"} for row in _times.on_gpus(results, overlap="on")]
    rows = [
        {"overlap": "off"} | row | {"communicate_s": IterationTime.of(row).exposed_s}
        for row in rows
        if row["nodes"] == NODES and row["algo"] in SHOWN
    ]
    order, algos = _draw.models_of(rows), list(SHOWN)
    rows.sort(key=lambda row: (order.index(row["model"]), row["source"] != "published", algos.index(row["algo"])))
    return [{name: row[name] for name in COLUMNS} for row in rows]


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
            total, left = sum(row[part] for part in PARTS), 0.0
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
            if row["hidden_s"]:  # at the end of backward, or before it
                hidden = 100 * row["hidden_s"] / total
                start = 100 * (row["compute_s"] + row["compress_s"]) / total - hidden
                bar = panel.barh(place, hidden, left=start, height=0.22, color=HIDDEN, edgecolor="white", linewidth=0.4)
                keys.setdefault("communicate, hidden", {})[False] = bar[0]
            panel.text(101, place, f"{total:#.3g} s", va="center", fontsize=6.5)
        panel.set_yticks(range(len(bars)), [_label(row) for row in bars], fontsize=6.5)
        panel.set(ylim=(len(bars) - 0.5, -0.5), xlim=(0, 100))
        panel.grid(False)
        batch = ", ".join(map(str, sorted({row["batch_per_node"] for row in bars})))
        panel.set_title(f"{_draw.model_name(model)}, P = {NODES}, batch {batch} per node", loc="left", pad=2)
    axes[-1].set_xlabel("share of the iteration (%)")
    _legend.draw(figure, {part: [bars[grey] for grey in sorted(bars)] for part, bars in keys.items()})
    _legend.note(figure, *_notes(rows))
    return figure


def _notes(rows: list[Row]) -> list[str]:
    measured = [row for row in rows if row["source"] == DILATED]
    return [
        "Seconds of the whole stand at the right. Butterfly: gTop-k butterfly; dense overlapped: buckets of 25 MB are "
        "sent beside backward, which hides the part drawn inside of compute. Published (grey): authors' script, of "
        "gTop-k alone; its communication includes copies, merges and barriers. Simulated: published compute and "
        "compression (gTop-k's, for all), our messages on the published alpha and beta.",
        f"Measured, dilated: the same compute and compression slept, our messages on real TCP at 1 Gbps, "
        f"{_times.slowed(measured)} ({COMMAND})."
        if measured
        else f"Measured, dilated: not run ({COMMAND}).",
        _two_computes(rows),
        _times.without_compress(rows),
    ]


def _two_computes(rows: list[Row]) -> str:
    """Returns whose compute is drawn where the paper has two that differ: in its breakdown, and of a node alone."""
    said = []
    for model in _draw.models_of(rows):
        own = [row for row in rows if row["model"] == model]
        grey = next((row["compute_s"] for row in own if row["source"] == "published"), None)
        ours = next((row["compute_s"] for row in own if row["source"] in (DILATED, "simulated")), None)
        if grey and ours and not math.isclose(grey, ours, rel_tol=ALIKE):
            said.append(f"{_draw.model_name(model)} {grey:.3f} and {ours:.3f} s")
    return (
        f"Two computes are published: grey bars have that of the breakdown on {NODES} nodes, simulated and dilated "
        f"ones the time of a batch at the throughput of one node alone: {', '.join(said)}."
        if said
        else ""
    )


def _label(row: Row) -> str:
    what = SHOWN[row["algo"]] + (" overlapped" if row["overlap"] == "on" else "")
    source = "measured on GPUs" if is_measured(row["source"]) and row["source"] != DILATED else row["source"]
    return "published" if source == "published" else f"{what}, {source}"
