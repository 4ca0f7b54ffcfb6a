"""Draws what figures share: the look of each algorithm, panels of a column's width, axes, and lines with bands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from repro.config.groups import group_options, title
from repro.tables import Row

PUBLISHED = "0.55"  # the grey of everything that the paper published
INK = "0.35"  # notes
MARKS = 9  # on a long curve
BAND = "_one standard deviation"  # no key of a legend: the note says it


class Drawing(Figure):
    """A figure with the lines that stand under it, or, without them, in a caption."""

    notes: tuple[str, ...] = ()


class Look(NamedTuple):
    """Tells an algorithm by colour (Okabe and Ito's, safe for colour-blind readers), marker and dash."""

    colour: str
    marker: str
    dash: Any


LOOKS = {
    "dense": Look("#0072B2", "o", "-"),
    "topk": Look("#D55E00", "s", (0, (4, 1.5))),
    "gtopk": Look("#009E73", "^", (0, (6, 1, 1, 1))),
    "gtopk_butterfly": Look("#CC79A7", "D", (0, (1, 1))),
    "gtopk_from_topk": Look("#E69F00", "v", (0, (3, 1, 1, 1, 1, 1))),
}
OTHERS = ("#56B4E9", "#000000", "#B8A200")  # for algorithms that are added later
IMAGES = ("resnet20", "vgg16", "alexnet", "resnet50")  # the paper's networks for images, in its order
PAPER = (*IMAGES, "lstm")


def look(algo: str) -> Look:
    known = LOOKS.get(algo)
    return known or Look(OTHERS[sum(map(ord, algo)) % len(OTHERS)], "P", (0, (2, 1)))


def algo_name(algo: str) -> str:
    return title("algo", algo)


def models() -> list[str]:
    """Returns every model that can be trained, the paper's first."""
    return [*PAPER, *(model for model in group_options("model") if model not in PAPER)]


def models_of(rows: Iterable[Row]) -> list[str]:
    """Returns the models of `rows`, in the order of `models`."""
    present = {row["model"] for row in rows}
    return [model for model in models() if model in present] + sorted(present - set(models()))


def model_name(model: str) -> str:
    return title("model", model)


def data_name(data: str) -> str:
    return title("data", data)


def algos_of(rows: Iterable[Row]) -> list[str]:
    """Returns the algorithms of `rows`: in the paper's order first, then by name."""
    order = list(LOOKS)
    return sorted({row["algo"] for row in rows}, key=lambda a: (order.index(a) if a in order else len(order), a))


def width() -> float:
    """Returns the width in inches that was asked for, or the item's own: one column of a page, or two."""
    return float(matplotlib.rcParams["figure.figsize"][0])


def wide() -> bool:
    return width() > 5


def panels(rows: int, columns: int = 1, height: float = 1.7, **options: Any) -> tuple[Drawing, list[Axes]]:
    """Returns a figure of rows x columns panels, each `height` inches, and its axes in reading order."""
    figure = Drawing(figsize=(width(), rows * height + 0.4), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def grid(count: int, columns: int = 2, height: float = 1.7, **options: Any) -> tuple[Drawing, list[Axes], int]:
    """Returns `count` panels in `columns` (twice as many over two columns of the page), and how many those are."""
    columns = min(count, 2 * columns if wide() else columns)
    figure, axes = panels(-(-count // columns), columns, height, **options)
    for panel in axes[count:]:
        panel.set_axis_off()
    return figure, axes[:count], columns


def at(panel: Axes) -> SubplotSpec:
    """Returns where among the panels this one stands."""
    spec = panel.get_subplotspec()
    assert spec is not None  # noqa: S101  (for the type checker: all panels are subplots)
    return spec


def blocks(rows: int, columns: int, height: float) -> tuple[Drawing, list[list[Axes]]]:
    """Returns panels[row][column]. Columns that a narrow figure has no room for stand below, as a block of all rows.

    A single column lies down over two columns of the page.
    """
    if columns == 1 and wide():
        figure, axes = panels(1, rows, height)
        return figure, [[one] for one in axes]
    most = min(columns, 4 if wide() else 2)
    figure, axes = panels(-(-columns // most) * rows, most, height)
    at = [
        [axes[(column // most * rows + row) * most + column % most] for column in range(columns)] for row in range(rows)
    ]
    for unused in set(axes) - {one for row_of in at for one in row_of}:
        unused.set_axis_off()
    return figure, at


def line(axes: Axes, rows: Sequence[Row], x: str, y: str, algo: str, **changes: Any) -> None:
    """Draws one algorithm's line, with a band of one standard deviation where there are several seeds."""
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
        "label": algo_name(algo),
        "markevery": _some(len(known), algo),
    } | changes
    axes.plot(xs, ys, **options)
    if all(std is not None for std in spread):
        low = [value - std for value, std in zip(ys, spread, strict=True)]
        high = [value + std for value, std in zip(ys, spread, strict=True)]
        axes.fill_between(xs, low, high, color=options["color"], alpha=0.18, linewidth=0, label=BAND)


def bars(axes: Axes, rows: Sequence[Row], x: str, y: str, spread: Sequence[float | None], algo: str) -> None:
    """Draws a bar of `spread` to either side of each point; none where it is None."""
    known = [(row[x], row[y], by) for row, by in zip(rows, spread, strict=True) if by is not None]
    where = [at for at, _, _ in known]
    low, high = ([value + side * by for _, value, by in known] for side in (-1, 1))
    axes.vlines(where, low, high, colors=look(algo).colour, linewidth=0.8)


def _some(points: int, algo: str) -> tuple[int, int]:
    """Returns which points of a curve get a marker: all of a few; of many every n-th, another one for each algorithm.

    Markers that all stood at the same epochs would hide each other.
    """
    every = 1 if points <= 12 else math.ceil(points / MARKS)
    place = list(LOOKS).index(algo) if algo in LOOKS else len(LOOKS)
    return place * every // (len(LOOKS) + 1), every


def published(axes: Axes, rows: Sequence[Row], x: str, y: str, algo: str, **changes: Any) -> None:
    """Draws a line with the same marker and dash, but in grey."""
    style = {"color": PUBLISHED, "linewidth": 0.9, "markersize": 3, "label": "_", "zorder": 1.5}
    line(axes, rows, x, y, algo, **style | changes)


def source_key(colour: str = INK, **look: Any) -> Line2D:
    """Returns the key of a source, in the grey of notes: in an algorithm's colour it would be a second key of that."""
    options: dict[str, Any] = {"linestyle": "", "markersize": 3.5} | look
    return Line2D([], [], color=colour, **options)


def nodes_axis(axes: Axes, nodes: Iterable[int]) -> None:
    """Sets an x axis with powers of two at equal distances, labelled by the numbers themselves."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(nodes)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.minorticks_off()
    axes.set_xlabel("nodes $P$")


def plain_log(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    """Sets a logarithmic axis of what is drawn already, with at least three ticks, written as plain numbers.

    An axis on which nothing is drawn stays as it is.
    """
    if not axes.collections and not any(np.size(line.get_xdata()) for line in axes.lines):
        return
    axes.set(**{f"{which}scale": "log"})
    if which == "x":
        axes.margins(x=0.08)
    else:
        axes.margins(y=0.08)
    axes.autoscale_view()
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) >= 3:
            break
    else:
        ticks = [tick for tick in MaxNLocator(4, min_n_ticks=3).tick_values(low, high) if low <= tick <= high]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.minorticks_off()


def bands_note(figure: Figure) -> str:
    """Returns one line on the bands of `line` where the figure has any."""
    bands = any(one.get_label() == BAND for axes in figure.axes for one in axes.collections)
    return "Bands: one standard deviation over seeds either side." if bands else ""


def runs_note(rows: Sequence[Row], batch: bool = True) -> list[str]:
    """Returns a line for each setting of the trained rows: data, nodes, schedule, precision, densities, seeds.

    Curves are named by their numbers of seeds where these differ.
    """
    by_settings: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        if row.get("source") == "trained":
            of_each = f"batch {row['batch_per_node']} per node, " if batch else ""
            settings = f"{data_name(row['data'])}, P = {row['nodes']}, {of_each}{row['schedule']}, {row['precision']}"
            by_settings.setdefault((row["model"], row["nodes"], settings), []).append(row)
    lines = []
    for (model, _, settings), mine in sorted(by_settings.items()):
        counts = sorted({row["n"] for row in mine})
        seeds = f"n = {counts[0]} seed{'s' * (counts[0] > 1)}"
        if len(counts) > 1:
            each = [f"{n} ({', '.join(_curves_of(mine, n))})" for n in reversed(counts)]
            seeds = f"n = {'; '.join(each)}"
        several = len({key for key in by_settings if key[0] == model}) > 1
        whose = f" ({', '.join(algo_name(algo) for algo in algos_of(mine))})" if several else ""
        lines.append(f"{model_name(model)}{whose}: {settings}{_densities(mine)}, {seeds}.")
    return lines


def _curves_of(rows: Sequence[Row], n: int) -> list[str]:
    """Returns the names of the curves of `n` seeds, with what an algorithm has several of."""
    names = []
    for row in (row for row in rows if row["n"] == n):
        same = [other for other in rows if other["algo"] == row["algo"]]
        name = algo_name(row["algo"])
        for key, word in (("momentum", "{}"), ("density", "ρ = {:g}"), ("schedule", "{}")):
            if len({str(other.get(key)) for other in same}) > 1:
                name += ", " + word.format(row[key])
        names.append(name)
    return list(dict.fromkeys(names))


def _densities(rows: Sequence[Row]) -> str:
    """Returns the densities of sparse curves, and those of their first epochs."""
    densities = sorted({row["density"] for row in rows} - {1, None}, reverse=True)
    if not densities:
        return ""
    warm = {
        density: sorted({row.get("density_warmup") or "" for row in rows if row["density"] == density})
        for density in densities
    }
    alike = len({tuple(one) for one in warm.values()}) == 1
    ways = {density: " throughout" if ways == [""] else _warmup(ways) for density, ways in warm.items()}
    names = [f"{density:g}" + ("" if alike else ways[density]) for density in densities]
    return f", ρ = {', '.join(names)}{_warmup(warm[densities[0]]) if alike else ''}"


def _warmup(ways: Sequence[str]) -> str:
    """Returns the densities of the first epochs, where all curves have the same."""
    if len(ways) != 1 or not ways[0]:
        return ""
    return f" (first {'epochs' if ' ' in ways[0] else 'epoch'} {ways[0].replace(' ', ', ')})"
