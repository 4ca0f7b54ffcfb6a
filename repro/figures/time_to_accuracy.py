"""Draws the predicted time to an accuracy over bandwidth, from committed curves (not in the paper)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

from matplotlib.figure import Figure

from repro.comm.cost_formulas import FORMS, closed_form
from repro.comm.traffic import Link
from repro.config import groups
from repro.figures import _curves, _draw, _legend
from repro.metric import ACCURACY
from repro.report import same_machine, time_to_target
from repro.report.as_published import as_published, other_schedule
from repro.report.group import Group
from repro.report.summaries import Results
from repro.report.time_to_target import Reach
from repro.tables import Row

TITLE = "Predicted time to an accuracy over bandwidth"
COMMAND = _curves.CONVERGENCE
TIMED = ("convergence", "momentum")  # experiments with timed runs of the settings whose curves are compared
ALSO = ("repro run experiment=momentum",)
NODES = (4, 32)
BITS_PER_S = tuple(10.0 ** (6 + step / 4) for step in range(17))  # 1 Mbps to 10 Gbps
STEP, LEAST = 0.05, 0.4  # targets are multiples of the first, and no less than the second, which is nearer to chance


def table(results: Results) -> list[Row]:
    """Returns for each model, algorithm, P and bandwidth the minutes until its curve reaches the target.

    Each P has its own target: the highest multiple of 5 % that two algorithms reach in the curves compared there. An
    algorithm that does not reach it has one row for each P, without minutes.
    """
    trained = [
        group
        for group in time_to_target.trained(results)
        if group.metric == ACCURACY
        and _form(group)
        and as_published(group.settings)
        and not other_schedule(group.settings)
    ]
    timed = [group for name in TIMED for group in results.groups(name) if group.time and as_published(group.settings)]
    rows = []
    for model in _draw.models_of({"model": group.model} for group in trained):
        own = [group for group in trained if group.model == model]
        sizes = [group.per_step["k"] for group in own if group.settings["density"] == 1]
        for nodes in NODES:
            target = highest(own, nodes)
            if target is None or not sizes:
                continue
            chosen = time_to_target.comparable(own, target, nodes)
            here = _on_one_machine(chosen, timed)
            if not here:
                continue
            for found in time_to_target.of_each_algorithm(chosen, target):
                rows += _minutes(found, nodes, sizes[0], _seconds(found.group, here))
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


def _form(group: Group) -> str | None:
    """Returns the name under which `closed_form` knows the algorithm's messages; None if it or k is unknown."""
    about = groups.about(group.algo) if group.algo in groups.group_options("algo") else {}
    known = group.per_step.get("k")
    return next((name for name in (group.algo, about.get("file")) if known and name in FORMS), None)


def _on_one_machine(chosen: Sequence[Group], timed: Iterable[Group]) -> list[Group]:
    """Returns the runs that one kind of machine timed: that which timed most of the chosen settings, then most runs.

    Runs of TIMED count, which have the network, batch, precision and P of the chosen ones.
    """
    wanted = {_timing(group) for group in chosen}
    like = [group for group in timed if any(_timing(group)[:4] == one[:4] for one in wanted)]
    kinds = [[group for group in like if same_machine.alike(group.machine, one.machine)] for one in like]
    return max(kinds, key=lambda own: (len(wanted & {_timing(one) for one in own}), len(own)), default=[])


def _timing(group: Group) -> tuple[Any, ...]:
    """Returns what decides a node's seconds: compute depends on the first four, compress on all."""
    settings = group.settings
    return group.model, group.batch, settings["precision"], group.nodes, group.algo, settings["density"]


def _seconds(group: Group, here: Sequence[Group]) -> tuple[float, float] | None:
    """Returns the median compute of these runs, and compress of those like `group`; None where there is none."""
    like = [one.time.compress_s for one in here if one.time and _timing(one) == _timing(group)]
    if not like:
        return None
    return statistics.median(one.time.compute_s for one in here if one.time), statistics.median(like)


def _minutes(found: Reach, nodes: int, parameters: int, seconds: tuple[float, float] | None) -> list[Row]:
    group, form, settings = found.group, _form(found.group), found.group.settings
    assert form is not None  # noqa: S101  (for the type checker: `table` leaves others out)
    batch = nodes * group.batch
    steps = [samples / batch for samples in found.samples]
    row: Row = {
        "source": "trained, then modelled",
        "model": group.model,
        "algo": group.algo,
        "density": settings["density"],
        "target": found.target,
        "nodes": nodes,
        "curve_nodes": group.nodes,
        "schedule": time_to_target.schedule(group),
        "data": group.data,
        "precision": settings["precision"],
        "n": found.n,
        "best": found.best,
        "epochs": found.said() + ("" if seconds else ", not timed on the machine of the others"),
        "compute_s": seconds and seconds[0],
        "compress_s": seconds and seconds[1],
    }
    alpha = settings.get("network", {}).get("alpha_s", 0.0)
    rows, computed = [], sum(seconds or ())
    for bits in BITS_PER_S if steps and seconds else ():
        wire = settings["algo"].get("wire", "pairs")
        communicate = closed_form(form, nodes, parameters, group.per_step["k"], Link(alpha, 8 / bits), wire)
        minutes = [one * (computed + communicate) / 60 for one in steps]
        rows.append(
            row
            | {"bits_per_s": bits, "communicate_s": communicate, "minutes": sum(minutes) / len(minutes)}
            | {"minutes_least": min(minutes), "minutes_most": max(minutes)}
        )
    none = dict.fromkeys(("bits_per_s", "communicate_s", "minutes", "minutes_least", "minutes_most"))
    return rows or [row | none]


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
            for density in sorted({row["density"] for row in own}):
                line = [row | {"Mbps": row["bits_per_s"] / 1e6} for row in own if row["density"] == density]
                _draw.line(panel, line, "Mbps", "minutes", algo)
                panel.fill_between(
                    [row["Mbps"] for row in line],
                    [row["minutes_least"] for row in line],
                    [row["minutes_most"] for row in line],
                    color=_draw.look(algo).colour, alpha=0.18, linewidth=0,
                )  # fmt: skip
                drawn[_draw.algo_name(algo)] = panel.get_lines()[-1]
        panel.set_xscale("log")
        _draw.plain_log(panel)
        panel.set_title(f"{_draw.model_name(model)}, P = {nodes}")
        panel.set_xlabel("bandwidth (Mbps)")
        panel.set_ylabel(f"minutes to {100 * mine[0]['target']:g} %")
    _legend.draw(figure, drawn)
    _legend.note(figure, *_notes(rows, models))
    return figure


def _density(row: Row) -> str:
    return "" if row["density"] == 1 else f" (ρ = {row['density']:g})"


def _notes(rows: list[Row], models: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for model in models:
        panels: dict[str, list[int]] = {}  # P by what is said of the curves there
        for nodes in NODES:
            curves = {(r["algo"], r["density"]): r for r in rows if (r["model"], r["nodes"]) == (model, nodes)}
            if not curves:
                continue
            said = "; ".join(
                f"{_draw.algo_name(row['algo'])}{_density(row)}: {row['epochs']}" for row in curves.values()
            )
            row, *_ = curves.values()  # what is compared has one target, schedule, data, precision and P
            on = f"{100 * row['target']:g} % on the schedule of {row['schedule']}"
            about = f"{on}, {_draw.data_name(row['data'])}, {row['precision']}"
            panels.setdefault(f"{about}, in curves of P = {row['curve_nodes']}: {said}.", []).append(nodes)
        for said, at in panels.items():
            lines.append(f"{_draw.model_name(model)}, P = {' and '.join(map(str, at))}: {said}")
    return [
        "Minutes = epochs to the target in committed curves x an iteration: compute and compress of one rank, medians "
        "over the committed runs of like settings that one kind of machine timed; messages by the published formulas "
        "on the bandwidth, with the latency of the runs' network. "
        f"A target is reached at {time_to_target.RULE}; before the learning rate drops accuracy moves by points from "
        "one epoch to the next, so that this may be some epochs early. "
        "Bands: from the soonest seed to the last; none where n = 1 or all seeds got there in the same epoch. "
        "Where a curve has another P, as many samples are taken to be needed, which is optimistic for larger batches.",
        *lines,
    ]
