"""Test accuracy of gTop-k at the paper's three densities, dense beside it, and why short schedules fall short."""

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from repro.figures import _curves, _draw
from repro.results import Results
from repro.tables import Row

TITLE = "Sensitivity to the density"
COMMAND = "repro run experiment=density_sensitivity"
MODELS = ("resnet20", "vgg16")
PUBLISHED = 0.001  # the highest
COLOURS = ("#004D40", "#009E73", "#7FCBB2", "#B8A200")  # one hue from dense to sparse
MARKERS = ("^", "v", "<", ">")


def table(results: Results) -> list[Row]:
    return _curves.rows(results, "density_sensitivity")


def draw(rows: list[Row]) -> Figure:
    models = sorted({row["model"] for row in rows})
    figure, axes = _draw.panels(2, len(models), 1.6, _draw.WIDTH * len(models) * (1.0 if len(models) == 1 else 0.75))
    densities = sorted({row["density"] for row in rows if row["algo"] != "dense"}, reverse=True)
    for place, y in enumerate(("train_loss", "test_accuracy")):
        for column, model in enumerate(models):
            panel = axes[place * len(models) + column]
            mine = [row for row in rows if row["model"] == model]
            unit = 100 if y == "test_accuracy" else 1
            scaled = [
                row | {name: None if row[name] is None else row[name] * unit for name in (y, f"{y}_std")}
                for row in mine
            ]
            _draw.line(panel, [row for row in scaled if row["algo"] == "dense"], "epoch", y, "dense")
            for density, colour, marker in zip(densities, COLOURS, MARKERS, strict=False):
                chosen = [row for row in scaled if row["algo"] != "dense" and row["density"] == density]
                label = f"gTop-k, ρ = {density:g}"
                _draw.line(panel, chosen, "epoch", y, "gtopk", color=colour, marker=marker, label=label)
            panel.set_xlabel("epoch")
            panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            panel.set_ylabel("training loss" if y == "train_loss" else "test accuracy (%)")
            if place == 0:
                panel.set_title(_draw.model_name(model))
    _draw.legend(figure, axes, 2)
    _draw.note(figure, *_draw.runs_note(rows), _moves(rows), _curves.missing(rows, MODELS, COMMAND))
    return figure


def _moves(rows: list[Row]) -> str:
    """What a density above the authors' is there for."""
    last = max((row for row in rows if PUBLISHED < row["density"] < 1), key=lambda row: row["epoch"], default=None)
    if last is None:
        return ""
    epochs, density = last["epoch"], last["density"]
    same = f"{epochs * density / PUBLISHED:.0f} epochs at {PUBLISHED}"
    return f"Ours: at ρ = {density:g} each entry moves in {epochs:g} epochs as often as in {same}."
