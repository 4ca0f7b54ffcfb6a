"""Training curves as rows, and as panels of loss, accuracy and accuracy against modelled time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from repro.figures import _draw
from repro.results import Group, Results
from repro.tables import Row


def of_one_schedule(groups: Sequence[Group]) -> list[Group]:
    """Of each model, the runs over one number of epochs, as curves of unlike schedules never share a panel.

    That with the most settings to compare; of several such the longest.
    """
    counts = Counter((group.model, group.settings["epochs"]) for group in groups)
    best = {model: max((n, epochs) for (of, epochs), n in counts.items() if of == model)[1] for model, _ in counts}
    return [group for group in groups if group.settings["epochs"] == best[group.model]]


def rows(results: Results, experiment: str) -> list[Row]:
    return [row for group in of_one_schedule(results.groups(experiment)) for row in of_group(group)]


def of_group(group: Group) -> list[Row]:
    settings = group.settings
    same = {
        "model": group.model,
        "algo": group.algo,
        "data": group.data,
        "nodes": group.nodes,
        "batch_per_node": settings["batch_per_node"] * settings["accumulate"],
        "density": settings["density"],
        "schedule": group.schedule,
        "precision": settings["precision"],
        "n": group.n,
        "seeds": " ".join(map(str, group.seeds)),
        "source": "trained",
        "network": group.time["network"] if group.time else None,
        "time_source": group.time["source"] if group.time else None,
    }
    step_s = group.step_s
    return [
        same
        | {k: v for k, v in point.items() if not k.startswith("test_loss")}
        | {"seconds": None if step_s is None else point["step"] * step_s}
        for point in group.curve
    ]


def draw(rows: list[Row], algos: Sequence[str] = (), against_time: bool = True) -> Figure:
    """Columns: models. Rows: training loss and test accuracy by epoch, test accuracy by time on the network."""
    models = [model for model in _draw.MODELS if any(row["model"] == model for row in rows)]
    models += sorted({row["model"] for row in rows} - set(models))
    views = [("epoch", "train_loss", 1.0), ("epoch", "test_accuracy", 100.0)]
    if against_time and any(row["seconds"] is not None for row in rows):
        views.append(("seconds", "test_accuracy", 100.0))
    width = _draw.WIDTH if len(models) == 1 else 2.6 * len(models)
    figure, axes = _draw.panels(len(views), len(models), 1.55, width)
    for place, (x, y, unit) in enumerate(views):
        for column, model in enumerate(models):
            panel = axes[place * len(models) + column]
            for algo in algos or _draw.algos_of(rows):
                mine = [row for row in rows if row["model"] == model and row["algo"] == algo]
                _draw.line(panel, _in_units(mine, x, y, unit), x, y, algo)
            if x == "epoch":
                panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            panel.set_xlabel(x if x == "epoch" else _time_label(rows, model))
            if column == 0:
                panel.set_ylabel("training loss" if y == "train_loss" else "test accuracy (%)")
            if place == 0:
                panel.set_title(_draw.model_name(model))
    _draw.legend(figure, axes, 4 if len(models) > 1 else 3)
    return figure


def _in_units(rows: list[Row], x: str, y: str, unit: float) -> list[Row]:
    scaled = [row | {name: None if row[name] is None else row[name] * unit for name in (y, f"{y}_std")} for row in rows]
    return (
        [row | {"seconds": None if row["seconds"] is None else row["seconds"] / 60} for row in scaled]
        if x == "seconds"
        else scaled
    )


def _time_label(rows: list[Row], model: str) -> str:
    first = next(row for row in rows if row["model"] == model)
    return f"minutes on {first['network']} ({first['time_source']})"


def time_note(rows: list[Row]) -> str:
    """How the seconds of a run were got."""
    if any(row["time_source"] == "modelled" for row in rows):
        return (
            "Modelled minutes: compute (the median of all runs) and compression of one rank alone, traffic as counted."
        )
    return ""


def missing(rows: list[Row], models: Sequence[str], command: str) -> str:
    """One line on what was not run."""
    absent = [_draw.model_name(model) for model in models if not any(row["model"] == model for row in rows)]
    return f"Not run: {', '.join(absent)} ({command})." if absent else ""
