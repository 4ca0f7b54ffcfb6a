"""Draws test accuracy of gTop-k at the paper's three densities beside dense; says why short schedules fall short."""

import math
from collections.abc import Iterable

from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from repro.figures import _curves, _draw, _legend, _names
from repro.metric import ACCURACY
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Sensitivity to the density"
COMMAND = "repro run experiment=density_sensitivity"
ALSO = (_curves.CONVERGENCE,)
MODELS = ("resnet20", "vgg16")
PUBLISHED = 0.001  # the highest
DARK, LIGHT = 0.95, 0.4  # of matplotlib's sequential map, from the highest density to the lowest
MARKERS = "^v<>dphX"


def table(results: Results) -> list[Row]:
    return [row for row in _curves.rows(results, "density_sensitivity", ACCURACY) if row["algo"] in ("dense", "gtopk")]


def draw(rows: list[Row]) -> Figure:
    columns = _curves.columns(rows)
    figure, panels = _draw.blocks(2, len(columns), 1.6)
    bounds = _curves.limits(mine for _, mine in columns)
    looks = scale({row["density"] for row in rows if row["algo"] != "dense"})
    for place, y in enumerate(("train_loss", "test_accuracy")):
        for column, (title, mine) in enumerate(columns):
            panel = panels[place][column]
            unit = 100 if y == "test_accuracy" else 1
            scaled = [
                row | {name: None if row[name] is None else row[name] * unit for name in (y, f"{y}_std")}
                for row in mine
            ]
            for name, own in _names.lines(scaled, "batch_per_node").items():
                if own[0]["algo"] == "dense":
                    _curves.line(panel, own, "epoch", y, "dense", label=name)
                    continue
                for density, (colour, marker) in looks.items():
                    chosen, label = [row for row in own if row["density"] == density], f"{name}, ρ = {density:g}"
                    _curves.line(panel, chosen, "epoch", y, "gtopk", color=colour, marker=marker, label=label)
            if y == "test_accuracy" and (of_column := bounds.get(_curves.scale(mine))):
                panel.set_ylim(*of_column)
            _curves.drops(panel, mine)
            panel.set_xlabel("epoch")
            panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            panel.set_ylabel("training loss" if y == "train_loss" else "test accuracy (%)")
            if place == 0 or (len(columns) == 1 and _draw.wide()):
                panel.set_title(title)
    _legend.of_panels(figure, figure.axes)
    _legend.note(
        figure,
        *_draw.runs_note(rows),
        _draw.bands_note(figure),
        _moves(rows),
        _curves.cut_note(rows),
        _curves.missing(rows, MODELS, "density_sensitivity"),
    )
    return figure


def scale(densities: Iterable[float]) -> dict[float, tuple[str, str]]:
    """Returns colour and marker of each density, the highest first: the sparser, the lighter, by logarithm."""
    order = sorted(densities, reverse=True)
    if not order:
        return {}
    high, low = math.log(order[0]), math.log(order[-1])
    shades = [DARK - (DARK - LIGHT) * (high - math.log(one)) / ((high - low) or 1.0) for one in order]
    colours = [to_hex(colormaps["Greens"](shade)) for shade in shades]
    return {one: (colours[place], MARKERS[place % len(MARKERS)]) for place, one in enumerate(order)}


def _moves(rows: list[Row]) -> str:
    """Explains why there is a density above the authors'."""
    last = max((row for row in rows if PUBLISHED < row["density"] < 1), key=lambda row: row["epoch"], default=None)
    if last is None:
        return ""
    epochs, density = last["epoch"], last["density"]
    same = f"{epochs * density / PUBLISHED:.0f} epochs at {PUBLISHED}"
    return f"Ours: at ρ = {density:g} each entry moves in {epochs:g} epochs as often as in {same}."
