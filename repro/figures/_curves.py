"""Turns training curves into rows, and draws panels of loss, accuracy or perplexity, and these against time."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.markers import TICKDOWN
from matplotlib.ticker import MaxNLocator

from repro import metric
from repro.figures import _draw, _legend, _shown
from repro.metric import Metric
from repro.report import prefixes, reference_curves
from repro.report.group import Group
from repro.report.summaries import Results
from repro.tables import Row

CONVERGENCE = "repro run experiment=convergence model=resnet20,vgg16"  # without model= it needs ImageNet too
END_POINTS = 25  # points of accuracy: an axis with whole schedules shows only the highest, where the claims are
MINUTES = "minutes at the\npublished throughput"
NARROW = 2.4  # inches, of a panel
LETTERS = 24  # in a line of the title of a narrow panel
DROP = "_learning rate drops"  # no key of a legend: the note says it
LONG = 24  # epochs: longer curves are thin lines


def rows(results: Results, experiment: str, measure: Metric | None = None) -> list[Row]:
    groups = _shown.of_one_schedule(prefixes.with_whole_runs(results, experiment, measure))
    return [row for group in groups for row in of_group(group)]


def of_reference(results: Results, groups: Iterable[Group]) -> list[Row]:
    """Returns the reference curves for the settings of the uncompressed `groups` on their data, in the columns of ours.

    Of groups on several P, those of the fewest nodes that any are like have curves beside them: these are of 4 and 8.
    The originals go before images that were encoded once more. `beside` names the panel.
    """
    made = []
    fewest_last = sorted(groups, key=lambda group: (group.nodes, group.encoded, _shown.panel(group)), reverse=True)
    known = {
        g.model: (g, runs)
        for g in fewest_last
        if g.curve and not g.compressed and g.settings["data"]["name"] == reference_curves.DATA
        and (runs := reference_curves.beside(results.reference, g.settings))
    }  # fmt: skip
    for group, runs in known.values():
        columns = dict.fromkeys(of_group(group)[0])
        for run in runs:
            same = {name: run[name] for name in ("model", "density", "nodes", "batch_per_node")}
            same |= {
                "algo": reference_curves.algo(run),
                "data": reference_curves.DATA,
                "source": "reference",
                "beside": ", ".join(_shown.words(_shown.panel(group))),
                "schedule": f"job {run['job']}",
            }
            made += [
                columns | same | {"epoch": epoch, "test_accuracy": percent / 100}
                for epoch, percent in enumerate(run["test_accuracy"], 1)
            ]
    return made


def of_group(group: Group) -> list[Row]:
    settings = group.settings
    same = {
        "model": group.model,
        "algo": group.algo,
        "data": group.data,
        "nodes": group.nodes,
        "batch_per_node": group.batch,
        "density": settings["density"],
        "density_warmup": " ".join(f"{density:g}" for density in settings["density_warmup"]),
        "schedule": group.schedule,
        "whole": group.whole,
        "drops": " ".join(f"{drop:g}" for drop in _drops(group)),
        "precision": settings["precision"],
        "n": group.n,
        "seeds": " ".join(map(str, group.seeds)),
        "source": "trained",
        "network": group.timed["network"] if group.timed else None,
        "time_source": group.timed["source"] if group.timed else None,
    }
    return [
        same
        | {k: v for k, v in point.items() if not k.startswith("test_loss")}
        | {"seconds": point["step"] * group.time.total if group.time else None}
        for point in group.curve
    ]


def _drops(group: Group) -> list[float]:
    """Returns the epochs of this run after which the learning rate has dropped, as far as it got."""
    settings = group.settings
    share = settings["epochs"] / settings["schedule_epochs"] if group.compressed else 1.0
    return [share * drop for drop in settings["lr_drops"] if share * drop < group.epochs]


def columns(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """Returns for each model, P, data and precision a title and its rows; a title names what a model has several of.

    Reference curves stand in the column that they are `beside`.
    """
    found: dict[str, list[Row]] = {}
    for model in _draw.models_of(rows):
        own = [row for row in rows if row["model"] == model]
        trained = [row for row in own if row["source"] != "reference"]
        kinds = sorted({(row["nodes"], row["data"], row["precision"]) for row in trained})
        for kind in kinds:
            words = _shown.words(kind)
            told = [word for word, values in zip(words, zip(*kinds, strict=True), strict=True) if len(set(values)) > 1]
            mine = [row for row in trained if (row["nodes"], row["data"], row["precision"]) == kind]
            others = [row for row in own if row["source"] == "reference" and row["beside"] == ", ".join(words)]
            found[", ".join([_draw.model_name(model), *told])] = mine + others
    return list(found.items())


def draw(rows: list[Row], algos: Sequence[str] = (), against_time: bool = True) -> _draw.Drawing:
    """Draws the `columns`; their rows: training loss and the test data's measure by epoch, this by published time.

    The measure is accuracy, or of text perplexity.
    """
    views = [("epoch", "loss"), ("epoch", "test")]
    if against_time and any(row.get("published_s") is not None for row in rows):
        views.append(("published_s", "test"))
    all_columns = columns(rows)
    bounds = limits([of_column for _, of_column in all_columns])
    figure, panels = _draw.blocks(len(views), len(all_columns), 1.55)
    for place, (x, what) in enumerate(views):
        for column, (title, of_column) in enumerate(all_columns):
            panel = panels[place][column]
            measure = metric.of_line(of_column[0])
            y, label, unit = _axis(what, measure)
            if all(row[x] is None for row in of_column):  # nothing was published of any algorithm here
                panel.set_axis_off()
                continue
            of_column = _in_units(of_column, x, y, unit)
            ours = [row for row in of_column if row["source"] != "reference"]
            references(panel, [row for row in of_column if row["source"] == "reference"], x, y)
            for algo in algos or _draw.algos_of(ours):
                lines(panel, [row for row in ours if row["algo"] == algo], x, y, algo)
            if x == "epoch":
                drops(panel, ours)
            ticks = MaxNLocator(6, integer=True) if x == "epoch" else MaxNLocator(5, steps=[1, 2, 5, 10])
            panel.xaxis.set_major_locator(ticks)
            whole = y == metric.ACCURACY.key and any(row["whole"] for row in ours)
            if whole and (of_scale := bounds.get(scale(ours))):
                panel.set_ylim(*of_scale)
            if x == "epoch":  # the same in loss and accuracy, of which reference curves have one alone
                panel.set_xlim(right=1.05 * max(row["epoch"] for row in of_column))
            narrow = _draw.width() / _draw.at(panel).get_gridspec().ncols < NARROW
            panel.set_xlabel(x if x == "epoch" else MINUTES.replace("\n", "\n" if narrow else " "), linespacing=0.9)
            first = _draw.at(panel).is_first_col() or not panels[place][column - 1].axison
            if first or len(all_columns) == 1 or measure.falls:
                panel.set_ylabel(label)
            if y == metric.PERPLEXITY.key:
                _draw.plain_log(panel)
            if place == 0 or (len(all_columns) == 1 and _draw.wide()):
                compressed = any("compressed" in row["schedule"] for row in ours)
                title += ", compressed schedule" if compressed else ""
                if narrow:
                    panel.set_title("\n".join(textwrap.wrap(title, LETTERS)), linespacing=0.9)
                else:
                    panel.set_title(title)
    _legend.of_panels(figure, figure.axes)
    return figure


def limits(columns: Iterable[list[Row]]) -> dict[tuple[str, str], tuple[float, float]]:
    """Returns the accuracies, in percent, between which all columns with whole runs of one `scale` are drawn."""
    told = ("algo", "nodes", "density", "batch_per_node", "schedule", "precision", "data")
    ends: dict[tuple[str, str], dict[tuple[object, ...], float]] = {}  # of whole runs, each at its last evaluation
    tops: dict[tuple[str, str], float] = {}
    for rows in columns:
        place = scale(rows)
        for row in rows:
            if (accuracy := row.get(metric.ACCURACY.key)) is not None:
                percent = metric.ACCURACY.unit * accuracy
                tops[place] = max(tops.get(place, 0.0), percent)
                if row["whole"]:
                    ends.setdefault(place, {})[tuple(row.get(name) for name in told)] = percent
    return {
        place: (min(max(own.values()) - END_POINTS, min(own.values()) - END_POINTS / 2), tops[place] + END_POINTS / 10)
        for place, own in ends.items()
    }


def scale(column: Sequence[Row]) -> tuple[str, str]:
    """Returns what columns share whose accuracies compare: the network and the images, however encoded."""
    return column[0]["model"], column[0]["data"].partition(" (")[0]


def _axis(what: str, measure: Metric) -> tuple[str, str, float]:
    """Returns the column of a view, the label of its axis, and the unit by which the column is multiplied."""
    return (
        ("train_loss", "training loss", 1.0) if what == "loss" else (measure.key, f"test {measure.label}", measure.unit)
    )


def lines(panel: Axes, rows: list[Row], x: str, y: str, algo: str) -> None:
    """Draws a curve for each density and batch of one algorithm; labels tell them, if there are several."""
    kinds = sorted({(row["density"], row["batch_per_node"]) for row in rows}, reverse=True)
    for kind in kinds:
        words = (f"ρ = {kind[0]:g}", f"batch {kind[1]}")
        told = [word for word, values in zip(words, zip(*kinds, strict=True), strict=True) if len(set(values)) > 1]
        own = [row for row in rows if (row["density"], row["batch_per_node"]) == kind]
        line(panel, own, x, y, algo, label=", ".join([_draw.algo_name(algo), *told]))


def line(panel: Axes, rows: list[Row], x: str, y: str, algo: str, **changes: Any) -> None:
    """Draws one algorithm's curve. If only the first epochs were run, it is a thin line with hollow markers."""
    for whole in (True, False):
        part = [row for row in rows if row["whole"] == whole]
        first = not whole and not any("compressed" in row["schedule"] for row in part)
        style = {"label": _draw.algo_name(algo)} | changes
        if first or len(part) > LONG:
            style |= {"linewidth": 0.6 if first else 0.9, "markersize": 2.5}
        if first:
            style |= {"markerfacecolor": "white", "label": f"{style['label']}, first epochs"}
        _draw.line(panel, part, x, y, algo, **style)
        if x != "epoch":
            drop_ticks(panel, part, x, y)


def references(panel: Axes, rows: list[Row], x: str, y: str) -> None:
    """Draws one thin grey line per run."""
    for job in dict.fromkeys(row["schedule"] for row in rows):
        curve = [row for row in rows if row["schedule"] == job]
        algo = curve[0]["algo"]
        label = f"reference, {_draw.algo_name(algo)}"
        _draw.published(panel, curve, x, y, algo, label=label, marker="", linewidth=0.6, zorder=2.5)


def drops(panel: Axes, rows: list[Row]) -> None:
    """Draws vertical lines at the epochs after which the learning rate is a tenth of what it was."""
    for epoch in sorted({float(drop) for row in rows for drop in row["drops"].split()}):
        panel.axvline(epoch, color=_draw.INK, linewidth=0.6, linestyle=":", zorder=0.5, label="learning rate × 0.1")


def drop_ticks(panel: Axes, rows: Sequence[Row], x: str, y: str) -> None:
    """Draws small ticks under a curve over time at its drops of the learning rate: each has its own time an epoch."""
    known = [row for row in rows if row[x] is not None and row[y] is not None]
    at = [float(drop) for drop in known[0]["drops"].split()] if known else []
    if at:
        own, xs, ys = ([row[name] for row in known] for name in ("epoch", x, y))
        places = np.interp(at, own, xs), np.interp(at, own, ys)
        panel.plot(*places, color="black", ls="", marker=TICKDOWN, ms=4, mew=0.8, zorder=3, label=DROP)


def _in_units(rows: list[Row], x: str, y: str, unit: float) -> list[Row]:
    scaled = [row | {name: None if row[name] is None else row[name] * unit for name in (y, f"{y}_std")} for row in rows]
    return scaled if x == "epoch" else [row | {x: None if row[x] is None else row[x] / 60} for row in scaled]


def cut_note(rows: Iterable[Row]) -> str:
    """Returns one line where accuracies have an axis that does not begin at 0."""
    cut = any(row["whole"] and row.get(metric.ACCURACY.key) is not None for row in rows)
    return "Accuracies below the axes are cut off." if cut else ""


def missing(rows: list[Row], models: Sequence[str], experiment: str) -> str:
    """Returns one line on what was not run."""
    absent = [model for model in models if not any(row["model"] == model for row in rows)]
    names = ", ".join(map(_draw.model_name, absent))
    return f"Not run: {names} (repro run experiment={experiment} model={','.join(absent)})." if absent else ""


def reference_note(rows: Iterable[Row]) -> str:
    """Returns one line that says whose runs the grey lines are."""
    theirs = [row for row in rows if row["source"] == "reference"]
    jobs = {(_draw.model_name(row["model"]), row["algo"], row["nodes"], row["batch_per_node"]) for row in theirs}
    if not jobs:
        return ""
    runs = ", ".join(f"{model} {_draw.algo_name(algo)} {nodes} × {batch}" for model, algo, nodes, batch in sorted(jobs))
    data = "the original images, float32, our samples a step (P × batch) and rate, logs of kljp/topk_results"
    return f"Grey: one run a line, {data}: {runs}."
