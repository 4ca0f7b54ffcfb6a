"""Draws which split suits which network and wire: the images, the network, or both (not in the paper)."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from repro.figures import _draw, _legend, _times
from repro.iteration_time import IterationTime
from repro.report.group import Group
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Which split for which network and wire"
COMMAND = "repro run experiment=strategies"
ALSO = ("repro strategies",)
WIDTH = "double"
WIRES = {"ethernet1g": "1 Gbps", "ethernet10g": "10 Gbps", "infiniband100g": "100 Gbps"}
DRAWN_ON = "ethernet1g"  # below the maps: where the lab measures
OTHERS = ("asynchronous", "accumulated")  # of another batch, or with weights that differ: not the same training
SIZE = 6  # points, of what a cell says
COLOURS = {
    "dense": "#0072B2", "dense, overlapped": "#56B4E9", "gTop-k": "#009E73", "pipeline": "#000000",
    "pipeline × dense": "#D55E00", "pipeline × gTop-k": "#E69F00", "dense, 4 batches a step": "#CC79A7",
    "gTop-k, 4 batches a step": "#999933", "averages, asynchronous": "#882255",
}  # fmt: skip
DASHES: dict[str, Any] = {  # where colours are of one grey
    "dense, overlapped": "--", "gTop-k": "-.", "pipeline × dense": ":", "dense, 4 batches a step": (0, (5, 1, 1, 1)),
    "gTop-k, 4 batches a step": (0, (1, 3)), "pipeline × gTop-k": (0, (3, 1, 1, 1, 1, 1)),
}  # fmt: skip
MARKS = {1: "o", 2: "s", 4: "^", 8: "D", 16: "P"}  # of a measured iteration, by its stages
OTHER = "X"
COLUMNS = (
    "source", "model", "network", "nodes", "strategy", "stages", "predicted_s", "measured_s", "images_per_s",
    "over_dense", "bytes_most", "memory", "dilation", "repeats", "best", "cuts", "modelled_s",
)  # fmt: skip


def table(results: Results) -> list[Row]:
    """Returns the best number of stages of each strategy, predicted, and what the lab measured, in other columns.

    `best` marks the fastest of those that train alike; `over_dense` is images a second over dense without overlap.
    """
    found = results.summaries.get("split_predictions", {}).get("rows", [])
    rows: list[Row] = []
    cases = dict.fromkeys((row["model"], row["network"], row["nodes"]) for row in found)
    for case in cases:
        own = [row for row in found if (row["model"], row["network"], row["nodes"]) == case]
        dense = next(row for row in own if name(row) == "dense")
        strategies = dict.fromkeys(map(name, own))
        fastest = [
            max((row for row in own if name(row) == strategy), key=lambda row: row["images_per_s"])
            for strategy in strategies
        ]
        best = max((row for row in fastest if row["kind"] not in OTHERS), key=lambda row: row["images_per_s"])
        for row in fastest:
            over = row["images_per_s"] / dense["images_per_s"]
            said = {"predicted_s": row["iteration_s"], "over_dense": over, "best": row is best}
            rows.append(_row("simulated", row | said))
    return rows + measured(results)


def measured(results: Results) -> list[Row]:
    """Returns the iterations of `experiment=strategies` in the dilated lab at the density that was predicted.

    With where each network was cut, and what the model has for these cuts.
    """
    usual = results.paper["training"]["density"]  # of predictions that do not say theirs
    density = results.summaries.get("split_predictions", {}).get("density", usual)
    alike = [one for one in results.groups("strategies") if one.settings["density"] in (density, 1)]
    timed = [(group, line) for group in alike if (line := _measured(group))]
    by_repeats = sorted(timed, key=lambda one: one[1]["repeats"])  # of dense measured twice, the last counts
    of_dense = {_place(group, line): line for group, line in by_repeats if _is_dense(group)}
    rows = []
    for group, line in timed:
        dense, total = of_dense.get(_place(group, line)), IterationTime.of(line).total
        images = group.nodes * group.batch
        stages = group.settings.get("stages", 1)
        what = {"nodes": group.nodes, "stages": stages, "algo": group.algo, "kind": _kind(group)}
        rows.append(_row(line["source"], what | {
            "model": group.model, "network": line["network"], "measured_s": total, "images_per_s": images / total,
            "over_dense": IterationTime.of(dense).total / total if dense else None,
            "bytes_most": line.get("bytes_most"), "dilation": line["dilation"], "repeats": line["repeats"],
            "cuts": " ".join(map(str, line.get("cuts") or [])) or None, "modelled_s": _modelled_s(group),
        }))  # fmt: skip
    return rows


def _is_dense(group: Group) -> bool:
    """Returns whether it is data parallel without compression or overlap, over which the others' gains are."""
    stages, overlap = group.settings.get("stages", 1), group.settings.get("overlap", "off")
    return (group.algo, stages, overlap) == ("dense", 1, "off")


def _kind(group: Group) -> str:
    return "overlapped" if group.settings.get("overlap", "off") == "on" else "synchronous"


def _place(group: Group, line: Row) -> tuple[Any, ...]:
    """Returns what an iteration shares with the dense one that it is compared with."""
    batch = group.settings["batch_per_node"], group.settings["accumulate"]
    return group.model, group.nodes, line["network"], *batch, group.settings["precision"]


def _measured(group: Group) -> Row | None:
    return next(iter(_times.in_lab(group)), None)


def _modelled_s(group: Group) -> float | None:
    return next((IterationTime.of(line).total for line in group.iteration_time if line["source"] == "modelled"), None)


def _row(source: str, known: Row) -> Row:
    return {column: known.get(column) for column in COLUMNS} | {"source": source, "strategy": name(known)}


def name(row: Row) -> str:
    algo = str({"dense": "dense", "gtopk": "gTop-k"}.get(row["algo"], row["algo"]))
    if row["kind"] == "asynchronous":
        return "averages, asynchronous"
    if row["kind"] == "accumulated":
        return f"{algo}, 4 batches a step"
    if row["kind"] == "overlapped":
        return f"{algo}, overlapped"
    if row["stages"] == 1:
        return algo
    return "pipeline" if row["stages"] == row["nodes"] else f"pipeline × {algo}"


def draw(rows: list[Row]) -> Figure:
    models = _draw.models_of(rows)
    figure, panels = _draw.blocks(2, len(models), 1.9)
    predicted = [row for row in rows if row["predicted_s"] is not None]
    in_lab = [row for row in rows if row["measured_s"] is not None]
    for column, model in enumerate(models):
        one_map(panels[0][column], [row for row in predicted if row["model"] == model and row["best"]])
        panels[0][column].set_title(_draw.model_name(model))
        panel = panels[1][column]
        for strategy, colour in COLOURS.items():
            own = [
                row for row in rows if (row["model"], row["network"], row["strategy"]) == (model, DRAWN_ON, strategy)
            ]
            line = [row for row in own if row["predicted_s"] is not None]
            marks = [row for row in own if row["measured_s"] is not None and row["over_dense"] is not None]
            style: dict[str, Any] = {"color": colour, "linewidth": 1.5, "linestyle": DASHES.get(strategy, "-")}
            panel.plot([r["nodes"] for r in line], [r["over_dense"] for r in line], **style)
            for row in marks:
                (mark,) = panel.plot(row["nodes"], row["over_dense"], MARKS.get(row["stages"], OTHER), color=colour)
                mark.set(markersize=3.5, markeredgecolor="white", markeredgewidth=0.4)
        _draw.nodes_axis(panel, {row["nodes"] for row in predicted} or {row["nodes"] for row in in_lab})
        _draw.plain_log(panel)
        if _draw.at(panel).is_first_col():
            panel.set_ylabel("images/s over dense")
    keys = {
        strategy: Line2D([], [], color=colour, linewidth=1.5, linestyle=DASHES.get(strategy, "-"))
        for strategy, colour in COLOURS.items()
        if any(row["strategy"] == strategy for row in rows)
    } | {
        f"measured, S = {stages}": _draw.source_key(marker=MARKS.get(stages, OTHER))
        for stages in sorted({row["stages"] for row in in_lab})
    }
    _legend.draw(figure, keys)
    _legend.note(
        figure,
        "Above: the fastest of those that train on the same images with the same weights on all nodes, S stages where "
        "it has some, and its images/s over dense data parallel without overlap. Below: all, on 1 Gbps. Speed alone: "
        "what gTop-k costs in accuracy, on 32 nodes most, is not in it.",
        "Lines and maps are predicted (repro strategies): each strategy's own messages, in their order, on the wire's "
        "alpha and beta; the published compute and compress (a P102-100's), divided among a network's blocks as "
        "timed here (one core of a CPU). Every node has the same number of images; four micro-batches a node, 16 for "
        "ResNet-50. The number of stages is the best of 2, 4, 8, 16.",
        "Asynchronous averages leave the nodes with different weights; 4 batches a step are a batch four times as "
        "large: neither is in the maps. Bytes of the busiest node and memory of the fullest are in the CSV.",
        measured_note(in_lab),
    )  # fmt: skip
    return figure


def measured_note(rows: list[Row]) -> str:
    """Says how the marks came about, and how far they are from what the model has for the same cuts."""
    if not rows:
        return "Measured: not run (repro run experiment=strategies)."
    *most, last = map(str, sorted({row["nodes"] for row in rows}))
    sizes = f"{', '.join(most)} and {last}" if most else last
    found = f"Marks are measured on {sizes} nodes of the lab, {_times.slowed(rows)}."
    split = [row["measured_s"] / row["modelled_s"] for row in rows if row["stages"] > 1 and row["modelled_s"]]
    if split:
        found += (
            " A mark's network is cut by the times of its blocks on the machine that measured it, not on that of the "
            f"lines; of the model with the same cuts, pipelines take {min(split):.2f} to {max(split):.2f}: "
            "TCP carries messages for which the model waits until both their ends are there."
        )
    return found


def _ink_on(colour: str) -> str:
    """Returns black or white, whichever can be read better on the colour."""
    red, green, blue = to_rgb(colour)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.4 else "black"


def one_map(panel: Axes, rows: Sequence[Row]) -> None:
    """Draws one cell for each number of nodes and wire: the fastest, its stages and its gain; nothing for no rows."""
    if not rows:
        panel.set_axis_off()
        return
    nodes, wires = sorted({row["nodes"] for row in rows}), [one for one in WIRES if one in {r["network"] for r in rows}]
    for row in rows:
        x, y = nodes.index(row["nodes"]), wires.index(row["network"])
        colour = COLOURS[row["strategy"]]
        panel.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour, linewidth=0))
        stages = f"S = {row['stages']}\n" if row["stages"] > 1 else ""
        said, ink = f"{stages}{row['over_dense']:.3g} ×", _ink_on(colour)
        panel.text(x, y, said, color=ink, ha="center", va="center", fontsize=SIZE, linespacing=0.95)
    panel.set_xlim(-0.5, len(nodes) - 0.5)
    panel.set_ylim(-0.5, len(wires) - 0.5)
    panel.set_xticks(range(len(nodes)), [str(one) for one in nodes])
    panel.set_yticks(range(len(wires)), [WIRES[one] for one in wires])
    panel.set_xlabel("nodes $P$")
    panel.tick_params(length=2)
    panel.grid(False)
    if not _draw.at(panel).is_first_col():
        panel.set_yticklabels([])
