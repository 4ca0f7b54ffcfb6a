"""Draws the predicted time to an accuracy over bandwidth, from committed curves (not in the paper)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from matplotlib.figure import Figure

from repro.comm.cost_formulas import FORMS, ROUTES, closed_form
from repro.comm.traffic import Link
from repro.config import groups
from repro.figures import _curves, _draw, _legend, _timed
from repro.metric import ACCURACY
from repro.report import moves, time_to_target
from repro.report.as_published import as_published, other_options, other_schedule
from repro.report.group import Group
from repro.report.summaries import Results
from repro.report.time_to_target import Reach
from repro.tables import Row

TITLE = "Predicted time to an accuracy over bandwidth"
COMMAND = f"repro run experiment={_timed.MADE_FOR}"
ALSO = (_curves.CONVERGENCE, "repro run experiment=many_nodes")
NODES = (4, 32)
BITS_PER_S = tuple(10.0 ** (6 + step / 4) for step in range(17))  # 1 Mbps to 10 Gbps
TIMES = ("compute_s", "compress_s", "bits_per_s", "communicate_s", "minutes", "minutes_least", "minutes_most")
STEP, LEAST = 0.05, 0.4  # targets are multiples of the first, and no less than the second, which is nearer to chance


def table(results: Results) -> list[Row]:
    """Returns for each model, algorithm, P and bandwidth the minutes until its curve reaches the target.

    Each P has its own target: the highest multiple of 5 % that two algorithms reach in the curves compared there. An
    algorithm that does not reach it has one row for each P, without minutes. Runs with other settings that reach it,
    trained on as many nodes, follow with their settings: with minutes where they were timed, on the images, and in the
    precision, of the others.
    """
    every = [group for group in time_to_target.trained(results) if group.metric == ACCURACY]
    trained = [group for group in every if _form(group) and _is_usual(group)]
    others = [group for group in every if not _is_usual(group) and _is_beside(group)]
    timed = _timed.groups(results)
    rows = []
    for model in _draw.models_of({"model": group.model} for group in trained):
        own = [group for group in trained if group.model == model]
        sizes = [group.per_step["k"] for group in own if group.settings["density"] == 1]
        for nodes in NODES:
            target = highest(own, nodes)
            if target is None or not sizes:
                continue
            chosen = time_to_target.comparable(own, target, nodes)
            on_as_many = (model, nodes, chosen[0].batch)
            like = [group for group in others if (group.model, group.nodes, group.batch) == on_as_many]
            beside = time_to_target.beside(like, chosen, target)
            here = _timed.on_one_machine([*chosen, *(found.group for found in beside)], timed)
            if not here:
                continue
            for found in time_to_target.of_each_algorithm(chosen, target):
                rows += _minutes(_row(found, nodes), found, sizes[0], _timed.seconds(found.group, here))
            for found in beside:
                row = _row(found, nodes) | {"settings": _settings(found.group)}
                seconds = _timed.seconds(found.group, here) if _is_drawn(found.group, chosen[0]) else None
                rows += _minutes(row, found, sizes[0], seconds) if seconds else [row | {"source": "trained"}]
    return rows


def highest(trained: Sequence[Group], nodes: int = 0) -> float | None:
    """Returns the highest multiple of STEP that at least two algorithms reach, else one; None if none has LEAST.

    They reach it in the curves that are compared where P is `nodes`.
    """
    for count in (2, 1):
        for step in range(round(1 / STEP), round(LEAST / STEP) - 1, -1):
            target = round(step * STEP, 2)
            chosen = time_to_target.comparable(trained, target, nodes)
            if sum(bool(found.samples) for found in time_to_target.of_each_algorithm(chosen, target)) >= count:
                return target
    return None


def _is_usual(group: Group) -> bool:
    return as_published(group.settings) and not other_schedule(group.settings)


def _is_beside(group: Group) -> bool:
    """Returns whether a run with other settings is named: on the schedule as it is written, in one bucket, flat."""
    return not (group.compressed or group.settings.get("bucket_mb") or group.settings.get("hierarchical"))


def _is_drawn(group: Group, compared: Group) -> bool:
    """Returns whether a run with other settings can stand in a panel: on its images, with messages of a formula."""
    kind = time_to_target.images_and_precision
    return kind(group) == kind(compared) and _form(group) is not None


def _settings(group: Group) -> str:
    """Says in what a run's settings are not those that are usual."""
    settings, (own, usual) = group.settings, _timed.options(group)
    said = [f"{name} {_short(value)}" for name, value in own.items() if value != usual[name]]
    warmup = groups.algo_default(group.algo, group.model, "density_warmup")
    lasting = [density for density in warmup if density > settings["density"]]
    if settings["density"] < 1 and (used := settings.get("density_warmup", warmup)) not in (warmup, lasting):
        said.append(f"density warm-up {used}" if used else "no density warm-up")
    if (clip := settings.get("clip_grad") or 0.0) != groups.default(group.model, "clip_grad"):
        said.append(f"gradient clipped to {clip:g}")
    return ", ".join([*said, *other_options(settings), *other_schedule(settings)])


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _form(group: Group) -> str | None:
    """Returns the name under which `closed_form` knows the algorithm's messages; None if it or k is unknown."""
    about = groups.about_known(group.algo)
    name = about.get("file") or group.algo
    if name == "gtopk":
        own = about | group.settings["algo"]["options"]
        name = ROUTES[own.get("route", "tree")]
    return name if group.per_step.get("k") and name in FORMS else None


def _minutes(row: Row, found: Reach, parameters: int, seconds: tuple[float, float] | None) -> list[Row]:
    """Returns the rows of a curve by bandwidth; one without minutes where it missed the target or was not timed."""
    group, form, nodes = found.group, _form(found.group), row["nodes"]
    assert form is not None  # noqa: S101  (for the type checker: `table` leaves others out)
    if seconds is None:
        return [row | {"epochs": f"{row['epochs']}, not timed on the machine of the others"}]
    compute_s, compress_s = seconds
    row |= {"compute_s": compute_s, "compress_s": compress_s}
    batch, alpha = nodes * group.batch, group.settings.get("network", {}).get("alpha_s", 0.0)
    wire, density = group.settings["algo"].get("wire", "pairs"), group.settings["density"]
    rows = []
    for bits in BITS_PER_S if found.samples else ():
        link = Link(alpha, 8 / bits)
        of_density = {
            one: closed_form(form, nodes, parameters, round(group.per_step["k"] * one / density), link, wire)
            for one in (*group.settings["density_warmup"], density)
        }
        minutes = [
            sum(
                part / batch * (compute_s + compress_s + of_density[one]) / 60
                for one, part in moves.at_densities(group, samples).items()
            )
            for samples in (found.mean_samples, *found.spread)
        ]
        times = dict(zip(("minutes", "minutes_least", "minutes_most"), minutes, strict=True))
        rows.append(row | {"bits_per_s": bits, "communicate_s": of_density[density]} | times)
    return rows or [row]


def _row(found: Reach, nodes: int) -> Row:
    """Returns what is known of a curve without times; `settings` says in what it is unlike those that are drawn."""
    group = found.group
    row: Row = {
        "source": "trained, then modelled",
        "model": group.model,
        "algo": group.algo,
        "density": group.settings["density"],
        "settings": None,
        "target": found.target,
        "nodes": nodes,
        "curve_nodes": group.nodes,
        "schedule": time_to_target.schedule(group),
        "data": group.data,
        "precision": group.settings["precision"],
        "n": found.n,
        "seeds": " ".join(map(str, sorted(found.seeds))),
        "best": found.best,
        "epochs": found.said(),
    }
    return row | dict.fromkeys(TIMES)


def draw(rows: list[Row]) -> Figure:
    models = _draw.models_of(rows)
    figure, panels = _draw.blocks(len(models), len(NODES), 1.9)
    drawn: dict[str, Any] = {}
    for (place, model), (column, nodes) in product(enumerate(models), enumerate(NODES)):
        panel = panels[place][column]
        mine = [row for row in rows if (row["model"], row["nodes"]) == (model, nodes)]
        if not mine:  # the curves of this P are all below the least target
            panel.set_axis_off()
            continue
        for algo in _draw.algos_of(mine):
            own = [row for row in mine if row["algo"] == algo and row["minutes"] is not None]
            for kind in sorted({_kind(row) for row in own}):
                line = [row | {"Mbps": row["bits_per_s"] / 1e6} for row in own if _kind(row) == kind]
                label = _name(line[0]) if line[0]["settings"] else _draw.algo_name(algo)
                hollow = {"markerfacecolor": "white", "linestyle": ":"} if line[0]["settings"] else {}
                _draw.line(panel, line, "Mbps", "minutes", algo, label=label, **hollow)
                panel.fill_between(
                    [row["Mbps"] for row in line],
                    [row["minutes_least"] for row in line],
                    [row["minutes_most"] for row in line],
                    color=_draw.look(algo).colour, alpha=0.18, linewidth=0,
                )  # fmt: skip
                drawn[label] = panel.get_lines()[-1]
        panel.set_xscale("log")
        _draw.plain_log(panel)
        curves = sorted({row["curve_nodes"] for row in mine} - {nodes})
        of = f"\n(curves of P = {', '.join(map(str, curves))})" if curves else ""
        panel.set_title(f"{_draw.model_name(model)}, P = {nodes}{of}")
        panel.set_xlabel("bandwidth (Mbps)")
        panel.set_ylabel(f"minutes to {100 * mine[0]['target']:g} %")
    _legend.draw(figure, drawn)
    _legend.note(figure, *_notes(rows, models))
    return figure


def _notes(rows: list[Row], models: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for model in models:
        panels: dict[str, list[int]] = {}  # P by what is said of the curves there
        for nodes in NODES:
            own = [row for row in rows if (row["model"], row["nodes"]) == (model, nodes)]
            if own:
                panels.setdefault(_of_panel(own), []).append(nodes)
        for said, at in panels.items():
            lines.append(f"{_draw.model_name(model)}, P = {' and '.join(map(str, at))}: {said}")
    return [
        "Minutes = epochs to the target in committed curves x an iteration: compute and compress of one rank, medians "
        "over the committed runs of like settings that one kind of machine timed; messages by the published formulas "
        "on the bandwidth, with the latency of the runs' network, in a density warm-up at its densities. "
        f"A target is reached at {time_to_target.RULE}; before the learning rate drops accuracy moves by points from "
        "one epoch to the next, so that this may be some epochs early. "
        f"Bands: over seeds, from the soonest to the last; {time_to_target.WITHIN}; none where both are one epoch. "
        "Where a curve has another P, as many samples are taken to be needed, which larger batches may not "
        f"bear{_never_there(rows)}: such a panel says what time would do alone.",
        *lines,
    ]


def _never_there(rows: list[Row]) -> str:
    """Names who is drawn by curves of another P, and on this P, with another network, did not reach the target."""
    usual = [row for row in rows if row["settings"] is None]
    assumed = {(row["algo"], row["nodes"]) for row in usual if row["curve_nodes"] != row["nodes"] and row["minutes"]}
    missed = sorted(
        {
            (_draw.algo_name(row["algo"]), _draw.model_name(row["model"]), row["nodes"])
            for row in usual
            if row["curve_nodes"] == row["nodes"] and not row["minutes"] and (row["algo"], row["nodes"]) in assumed
        }
    )
    return "".join(f"; with {model} on {nodes} nodes {algo} did not reach the target" for algo, model, nodes in missed)


def _of_panel(rows: list[Row]) -> str:
    """Says of a panel's target when each curve reached it, and which runs did with settings that are not drawn."""
    drawn = {(row["algo"], _kind(row)): row for row in rows if row["settings"] is None or row["minutes"]}
    others = [row for row in rows if row["settings"] is not None and not row["minutes"]]
    row, *_ = rows  # what is compared has one target, schedule, data, precision and P
    on = f"{100 * row['target']:g} % on the schedule of {row['schedule']}, {_trained_on(row)}"
    said = f"{on}: {_when(drawn.values())}."
    if others:
        there = _trained_on(others[0])
        where = "" if there == _trained_on(row) else f" ({there})"
        said += f" Not drawn: runs with other settings reached it too{where}: {_when(others)}."
    return said


def _when(rows: Iterable[Row]) -> str:
    return "; ".join(f"{_name(row)}: {row['epochs']}" for row in rows)


def _kind(row: Row) -> tuple[float, str]:
    return row["density"], row["settings"] or ""


def _trained_on(row: Row) -> str:
    return f"{_draw.data_name(row['data'])}, {row['precision']}, in curves of P = {row['curve_nodes']}"


def _name(row: Row) -> str:
    density = "" if row["density"] == 1 else f"ρ = {row['density']:g}"
    said = ", ".join(filter(None, (density, row["settings"])))
    return _draw.algo_name(row["algo"]) + (f" ({said})" if said else "")
