"""Draws what gTop-k without momentum keeps of dense's accuracy over whole runs, and its bytes (not in the paper)."""

import itertools
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from repro.figures import _curves, _draw, _legend
from repro.metric import ACCURACY
from repro.report import momentum, moves, pool_seeds, prefixes
from repro.report.as_published import as_published, other_options, other_schedule
from repro.report.group import Group
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "What gTop-k keeps of dense's accuracy without momentum, and what it sends"
COMMAND = "repro run experiment=many_nodes"
ALSO = (_curves.CONVERGENCE, "repro run experiment=momentum")
WIDTH = "double"
BESIDE = ("dense", "topk", "gtopk", "gtopk_corrected")  # of the whole runs by their own rules
GTOPK = ("gtopk", "gtopk_corrected")  # what the curves without momentum are of
OURS = "#000000"  # as no momentum has in the figure of momentum
POINTS = 20.0  # of accuracy below the best end: higher than what runs have in their first epochs


def table(results: Results) -> list[Row]:
    """Returns the curves of many_nodes' whole runs, and of whole runs beside them on as many nodes and on fewer.

    `sent` is in bytes, by the busiest node from the start: a usual step's, in a warm-up in proportion to the density.
    """
    own = [group for group in results.groups("many_nodes", ACCURACY) if group.whole and group.algo in BESIDE]
    density = results.paper.get("training", {}).get("density")
    beside = [
        group
        for group in results.groups("convergence", ACCURACY)
        if group.algo in BESIDE
        and group.settings["density"] in (1, density)
        and as_published(group.settings)
        and not other_schedule(group.settings)
    ]
    in_momentum = [group for group in results.groups("momentum", ACCURACY) if group.algo == "gtopk"]
    beside += [group for group in in_momentum if momentum.rule(group.settings) == momentum.NONE]
    alike = [g for g in beside if g.whole and g.curve and any(_kind(g) == _kind(one) for one in own)]
    each = map(_pooled, prefixes.of_one_setting((*own, *alike)))
    return [row for curve, group in enumerate(sorted(each, key=_order)) for row in _rows(group, curve)]


def _pooled(same: list[Group]) -> Group:
    """Returns one group of the seeds of all; one that shares a seed with a larger one is left out."""
    largest, *others = sorted(same, key=lambda group: (group.n, len(group.curve)), reverse=True)
    for other in others:
        if not set(largest.seeds) & set(other.seeds):
            largest = Group(**pool_seeds.of_both(vars(largest), vars(other)))
    return largest


def _order(group: Group) -> tuple[Any, ...]:
    place = BESIDE.index(group.algo)
    return group.nodes, momentum.rule(group.settings) == momentum.NONE, place, group.settings["density"], group.runs


def _kind(group: Group) -> tuple[Any, ...]:
    model, _, *others = prefixes.kind(group)
    return model, *others


def _rows(group: Group, curve: int) -> list[Row]:
    settings, step_bytes = group.settings, group.busiest_bytes
    more = {
        "curve": curve,
        "momentum": momentum.rule(settings),
        "effective_lr": momentum.effective_lr(settings),
        "format": settings["algo"].get("wire", "pairs") if settings["density"] < 1 else None,
        "options": ", ".join(other_options(settings)),
    }
    return [
        row
        | more
        | {"sent": step_bytes and step_bytes * moves.selections(group, row["epoch"], {}) / settings["density"]}
        for row in _curves.of_group(group)
    ]


def draw(rows: list[Row]) -> Figure:
    columns = _curves.columns(rows)
    figure, panels = _draw.blocks(2, len(columns), 1.9)
    best = max(100 * row["test_accuracy"] for row in rows)
    for column, (title, of_column) in enumerate(columns):
        mine = [
            row | {"accuracy": 100 * row["test_accuracy"], "accuracy_std": 100 * std if std else None}
            for row, std in ((row, row["test_accuracy_std"]) for row in of_column)
        ]
        for place, x in enumerate(("epoch", "gigabytes")):
            panel = panels[place][column]
            for curve in _by_curve([row | {"gigabytes": row["sent"] and row["sent"] / 1e9} for row in mine]):
                _draw.line(panel, curve, x, "accuracy", curve[0]["algo"], **_look(curve[0]))
            panel.set_ylim(best - POINTS, best + 1)
            panel.set_ylabel("test accuracy (%)")
        _curves.drops(panels[0][column], mine)
        panels[0][column].set_title(title)
        panels[0][column].set_xlabel("epoch")
        panels[0][column].xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panels[1][column].set_xscale("log")
        panels[1][column].set_xlabel("GB sent, busiest node")
    _legend.of_panels(figure, figure.axes)
    cut = f"Accuracies more than {POINTS:g} points below the best are cut off."
    _legend.note(
        figure, *_draw.runs_note(rows), _draw.bands_note(figure), *_ends_note(rows), *_rarer(rows), cut, _commands(rows)
    )
    return figure


def _by_curve(rows: list[Row]) -> list[list[Row]]:
    """Returns the rows of each curve of one column, in their order."""
    curves: dict[Any, list[Row]] = {}
    for row in rows:
        curves.setdefault(row["curve"], []).append(row)
    return list(curves.values())


def _is_ours(row: Row) -> bool:
    return row["algo"] in GTOPK and row["density"] < 1 and row["momentum"] == momentum.NONE


def _look(row: Row) -> dict[str, Any]:
    if not _is_ours(row):
        without = {"label": _name(row), "linestyle": "-."} if row["momentum"] == momentum.NONE else {}
        larger = {"label": _name(row), "linestyle": ":"} if _size(row) != 1 else {}
        return {"linewidth": 0.9, "markersize": 2.5, **without, **larger}
    usual = _size(row) == 1.0
    return {
        "label": _name(row),
        "color": OURS,
        "linewidth": 0.9 if usual else 1.4,
        "linestyle": ":" if usual else "-",
        "marker": "v" if usual else "*",
        "markersize": 2.5 if usual else 4.5,
    }


def _name(row: Row) -> str:
    if not _is_ours(row):
        without = [momentum.NONE] * (row["momentum"] == momentum.NONE)
        return ", ".join([_draw.algo_name(row["algo"]), *without, *_larger(row)])
    return f"gTop-k, no momentum, {_own(row)}"


def _size(row: Row) -> float:
    """Returns how many times as large the updates are as those of the network's own settings, if it has them."""
    own = float(row["effective_lr"])
    return own / (momentum.usual_lr(row["model"]) or own)


def _own(row: Row) -> str:
    """Returns what a run without momentum has of its own."""
    rounded = [str(row["format"])] * (row["format"] != "pairs")
    options = [row["options"]] * bool(row["options"])
    return ", ".join([f"ρ = {row['density']:g}", *_larger(row), *rounded, *options])


def _larger(row: Row) -> list[str]:
    return [f"updates × {_size(row):g}"] * (_size(row) != 1.0)


def _ends(of_column: list[Row]) -> list[Row]:
    """Returns the last row of each curve, the most accurate one first."""
    return sorted((curve[-1] for curve in _by_curve(of_column)), key=lambda row: -row["test_accuracy"])


def _ends_note(rows: list[Row]) -> list[str]:
    lines = []
    for title, of_column in _curves.columns(rows):
        told = (
            f"{_name(row)} {100 * row['test_accuracy']:.2f} % (n = {row['n']}, {_sent(row)})"
            for row in _ends(of_column)
        )
        lines.append(f"At the end, {title}: {'; '.join(told)}.")
    return lines


def _rarer(rows: list[Row]) -> list[str]:
    """Says of a curve that was evaluated less often than each epoch from when on: its line is smoother by that."""
    lines = []
    for curve in _by_curve(rows):
        epochs = [row["epoch"] for row in curve]
        gaps = [after - before for before, after in itertools.pairwise(epochs)]
        if gaps and (most := max(gaps)) > 1:
            begins = epochs[gaps.index(most)]
            lines.append(
                f"{_name(curve[0])}, P = {curve[0]['nodes']}: evaluated every {most:g} epochs from {begins:g} on."
            )
    return lines


def best(rows: list[Row]) -> str:
    """Says in one sentence how the best of ours on the most nodes ended beside dense; "" where one was not run."""
    nodes = max((row["nodes"] for row in rows), default=0)
    columns = [_ends(of_column) for _, of_column in _curves.columns(rows) if of_column[0]["nodes"] == nodes]
    return next(filter(None, (_best_of(ends) for ends in sorted(columns, key=_accuracy, reverse=True))), "")


def _accuracy(ends: list[Row]) -> float:
    return float(ends[0]["test_accuracy"])


def _best_of(ends: list[Row]) -> str:
    with_momentum = [row for row in ends if row["algo"] == "dense" and row["momentum"] != momentum.NONE]
    every = {_size(row): row for row in reversed(with_momentum)}  # of each size the best
    dense = every.get(1.0)
    ours = next(filter(_is_ours, ends), None)
    if dense is None or ours is None:
        return ""
    share = (
        f", with {100 * ours['sent'] / dense['sent']:.1f} % of dense's bytes in float32"
        if ours["sent"] and dense["sent"]
        else ""
    )
    accuracies = (f"{100 * row['test_accuracy']:.2f} %" for row in (ours, dense))
    larger = f", updates {_size(ours):g} times as large as dense's" * (_size(ours) != 1)
    if _size(ours) != 1 and (as_large := every.get(_size(ours))):
        share = f" ({100 * as_large['test_accuracy']:.2f} % with updates as large){share}"
    elif _size(ours) != 1:
        share += "; dense with updates as large was not trained whole"
    return (
        f"On {ours['nodes']} nodes gTop-k without momentum (density {ours['density']:g}{larger}, "
        f"`algo.wire={ours['format']}`) ends at {' and dense at '.join(accuracies)}{share} "
        f"({_draw.model_name(ours['model'])}, {ours['schedule']}, {_draw.data_name(ours['data'])}, "
        f"n = {' and '.join(map(str, dict.fromkeys((ours['n'], dense['n']))))})."
    )


def _commands(rows: list[Row]) -> str:
    """Says what to type for the curves that have no name of an algorithm."""
    typed = sorted({(row["nodes"], row["algo"]) for row in rows if _is_ours(row)})
    plain = {"gtopk": " momentum=0 lr=1.0"}
    told = (f"algo={algo}{plain.get(algo, '')} (P = {nodes})" for nodes, algo in typed)
    return f"No momentum: {', '.join(told)}." if typed else ""


def _sent(row: Row) -> str:
    return "bytes not counted" if row["sent"] is None else f"{row['sent'] / 1e9:.3g} GB"
