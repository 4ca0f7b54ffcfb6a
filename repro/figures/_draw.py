"""What the figures share: how each algorithm looks, how panels are laid out, and the note that says where
numbers come from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from repro.tables import Row

WIDTH = 3.5  # inches, one column
PUBLISHED = "0.55"  # the grey of everything that the paper published
INK = "0.35"  # notes


class Look(NamedTuple):
    """Colour (Okabe and Ito's, safe for colour-blind readers), marker and dash together tell an algorithm."""

    label: str
    colour: str
    marker: str
    dash: Any


LOOKS = {
    "dense": Look("dense", "#0072B2", "o", "-"),
    "topk": Look("Top-k", "#D55E00", "s", (0, (4, 1.5))),
    "gtopk": Look("gTop-k", "#009E73", "^", (0, (6, 1, 1, 1))),
    "gtopk_butterfly": Look("gTop-k butterfly", "#CC79A7", "D", (0, (1, 1))),
    "gtopk_from_topk": Look("k of k×P", "#E69F00", "v", (0, (3, 1, 1, 1, 1, 1))),
}
OTHERS = ("#56B4E9", "#000000", "#B8A200")  # for algorithms that are added later
MODELS = {
    "resnet20": "ResNet-20",
    "vgg16": "VGG-16",
    "alexnet": "AlexNet",
    "resnet50": "ResNet-50",
    "lstm_ptb": "LSTM-PTB",
}


def look(algo: str) -> Look:
    known = LOOKS.get(algo)
    return known or Look(algo.replace("_", " "), OTHERS[sum(map(ord, algo)) % len(OTHERS)], "P", (0, (2, 1)))


def model_name(model: str) -> str:
    return MODELS.get(model, model)


def algos_of(rows: Iterable[Row]) -> list[str]:
    """The paper's order first, then by name."""
    order = list(LOOKS)
    return sorted({row["algo"] for row in rows}, key=lambda a: (order.index(a) if a in order else len(order), a))


def panels(rows: int, columns: int = 1, height: float = 1.7, width: float = WIDTH) -> tuple[Figure, list[Axes]]:
    """A figure of rows x columns panels, each `height` inches; the axes in reading order."""
    figure = Figure(figsize=(width, rows * height + 0.4), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def line(axes: Axes, rows: Sequence[Row], x: str, y: str, algo: str, **changes: Any) -> None:
    """One algorithm's line, with a band of one standard deviation where there are several seeds."""
    known = [row for row in rows if row[x] is not None and row[y] is not None]
    if not known:
        return
    style = look(algo)
    xs, ys = [row[x] for row in known], [row[y] for row in known]
    spread = [row.get(f"{y}_std") for row in known]
    options = {
        "color": style.colour,
        "marker": style.marker,
        "linestyle": style.dash,
        "label": style.label,
    } | changes
    if len(known) > 24:
        options["markevery"] = len(known) // 12
    axes.plot(xs, ys, **options)
    if all(std is not None for std in spread):
        low = [value - std for value, std in zip(ys, spread, strict=True)]
        high = [value + std for value, std in zip(ys, spread, strict=True)]
        axes.fill_between(xs, low, high, color=options["color"], alpha=0.18, linewidth=0)


def published(axes: Axes, rows: Sequence[Row], x: str, y: str, algo: str, **changes: Any) -> None:
    """The same marker and dash in grey."""
    style = {"color": PUBLISHED, "linewidth": 0.9, "markersize": 3, "label": "_", "zorder": 1.5}
    line(axes, rows, x, y, algo, **style | changes)


def nodes_axis(axes: Axes, nodes: Iterable[int]) -> None:
    """Powers of two at equal distances, labelled by the numbers themselves."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(nodes)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.minorticks_off()
    axes.set_xlabel("nodes $P$")


def plain_log(axes: Axes) -> None:
    """A logarithmic y axis with 1, 3, 10, 30 ... written as such."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.minorticks_off()


def legend(figure: Figure, axes: Iterable[Axes], columns: int = 3) -> None:
    """One legend above all panels, each label once."""
    handles: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside upper center",
            ncols=min(columns, len(handles)),
        )


def note(figure: Figure, *lines: str) -> None:
    """Small lines under the panels: what was run, how often, on which data, and what was not."""
    size, leading = 6.5, 7.9
    columns = int(figure.get_figwidth() * 72 / (size * 0.47))
    wrapped = [part for text in lines if text for part in textwrap.wrap(text, columns)]
    if not wrapped:
        return
    width, height = figure.get_size_inches()
    extra = (leading * len(wrapped) + 3) / 72
    figure.set_size_inches(width, height + extra)
    share = extra / (height + extra)
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, share, 1, 1 - share))
    figure.text(0.015, 0.004, "\n".join(wrapped), fontsize=size, color=INK, va="bottom", linespacing=1.15)


def runs_note(rows: Sequence[Row]) -> list[str]:
    """What trained rows must say of themselves: data, seeds, nodes, schedule, precision."""
    ours = [row for row in rows if row.get("source") == "trained"]
    lines = []
    for model in sorted({row["model"] for row in ours}):
        mine = [row for row in ours if row["model"] == model]
        first = mine[0]
        counts = sorted({row["n"] for row in mine})
        seeds = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]}–{counts[-1]}"
        lines.append(
            f"{model_name(model)}: {first['data']}, P = {first['nodes']}, batch {first['batch_per_node']} "
            f"per node, "
            f"{first['schedule']}, {first['precision']}, {seeds} seed{'s' if counts[-1] > 1 else ''}."
        )
    return lines
