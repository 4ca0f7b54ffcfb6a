"""Lists the accuracies of whole runs by stretches of the schedule, beside the reference curves' (not in the paper)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from repro.figures import _curves, _draw, _names
from repro.metric import ACCURACY
from repro.report import momentum, moves, pairs, prefixes, reference_curves
from repro.report.group import Group
from repro.report.prefixes import Pooled
from repro.report.reference_curves import Run
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Whole schedules by stretches: accuracies, loss and how often an entry moved"
COMMAND = _curves.CONVERGENCE
ALSO = tuple(
    f"repro run experiment={name}"
    for name in ("density_sensitivity", "select_from_k_times_P", "momentum", "many_nodes")
)
FIRST = 5  # epochs
WHOLE = 135  # epochs of the shortest whole run of the reference curves; most have 138 to 140
STRETCHES = (f"first {FIRST} epochs (%)", "high rate (%)", "after the first drop (%)")
Mean = Callable[[int, int], float | None]  # of the accuracies of these epochs, in percent


def table(results: Results) -> list[Row]:
    """Returns a row for each setting with whole runs: dense first of those on the same nodes and images.

    A stretch has the mean of all its epochs, and none where some were not evaluated: *high rate* lies between the
    warm-up of the learning rate and its first drop. Points below dense are of the seeds that both have, at the end.
    The reference curves of the same network and learning rate, with as many samples a step, follow.
    """
    whole = [group for _, group in results.all_groups() if group.whole and group.curve and group.metric is ACCURACY]
    settings = prefixes.of_one_setting(prefixes.each_once(whole))
    dense = [
        group for same in settings for group in same if group.algo == "dense" and momentum.is_usual(group.settings)
    ]
    order = _draw.algos_of({"algo": group.algo} for group in whole)
    settings.sort(key=lambda same: (*_place(same[0]), order.index(same[0].algo), -same[0].settings["density"]))
    rows = [_of_setting(same, dense, results.networks) for same in settings]
    return rows + list(_of_reference(results.reference, [same[0] for same in settings]))


def _place(group: Group) -> tuple[str, int, bool, str]:
    return group.model, group.nodes, group.encoded, group.data


def _of_setting(same: list[Group], dense: Sequence[Group], known: dict[str, Any]) -> Row:
    group, settings = max(same, key=lambda one: one.n), same[0].settings
    (end,) = prefixes.at_epoch(same, group.epochs)

    def mean(first: int, last: int) -> float | None:
        return next((one.mean for one in prefixes.at_epoch(same, last, last - first + 1) if one.n == end.n), None)

    run = group.algo, moves.selections(group, group.epochs, known), group.nodes
    return {
        "model": _draw.model_name(group.model),
        "nodes": group.nodes,
        "batch per node": group.batch,
        "data": _draw.data_name(group.data),
        "algorithm": _names.of_group(group),
        "density": settings["density"],
        "source": f"trained, {settings['precision']}",
        "n": end.n,
        "end (%)": end.mean,
        "below dense (points)": _below(same, end, dense),
        **_stretches(mean, group),
        "training loss": group.curve[-1]["train_loss"] if end.n == group.n else None,  # of one group's seeds
        "times an entry moves": moves.moves(*run),
        "a node's entry is sent": moves.sent(*run),
        "momentum": momentum.rule(settings),
        "each seed's end (%)": ", ".join(f"{value:.2f}" for _, value in sorted(end.accuracies.items())),
    }


def _below(same: Sequence[Group], end: Pooled, dense: Sequence[Group]) -> float | None:
    """Returns by how many points the seeds that dense has too end below it; None of dense itself."""
    if any(one is other for one in same for other in dense):
        return None
    beside = prefixes.at_epoch([one for one in dense if pairs.alike(same[0], one)], end.group.epochs)
    of_dense = max((one.accuracies for one in beside), key=len, default={})
    shared = end.accuracies.keys() & of_dense
    return statistics.fmean(of_dense[seed] - end.accuracies[seed] for seed in shared) if shared else None


def _stretches(mean: Mean, group: Group) -> Row:
    """Returns the columns of STRETCHES, by the schedule of `group`."""
    drops, warm = group.settings["lr_drops"], math.ceil(group.settings["lr_warmup_epochs"])
    dropped = int(drops[0]) if drops and drops[0] < group.epochs else None
    high = None if dropped is None or warm >= dropped else mean(warm + 1, dropped)
    low = None if dropped is None else mean(dropped + 1, int(group.epochs))
    return dict(zip(STRETCHES, (mean(1, FIRST), high, low), strict=True))


def _of_reference(runs: list[Run], groups: Sequence[Group]) -> Iterator[Row]:
    """Yields whole reference curves beside any of `groups`, once each; curves of one setting have one row."""
    beside: dict[tuple[str, int, float, str, int, float], tuple[Group, list[Run]]] = {}
    for group in groups:
        for run in reference_curves.beside(runs, group.settings):
            key = run["model"], run["nodes"], -run["density"], reference_curves.algo(run)
            _, found = beside.setdefault((*key, run["batch_per_node"], run["lr"]), (group, []))
            found += [run] if run not in found and len(run["test_accuracy"]) >= WHOLE else []
    for (model, nodes, density, algo, batch, _), (group, alike) in sorted(beside.items(), key=lambda one: one[0]):
        if not alike:
            continue
        curves = [run["test_accuracy"] for run in alike]

        def mean(first: int, last: int, curves: list[list[float]] = curves) -> float:
            return statistics.fmean(statistics.fmean(curve[first - 1 : last]) for curve in curves)

        ends = [curve[-1] for curve in curves]
        yield {
            "model": _draw.model_name(str(model)),
            "nodes": nodes,
            "batch per node": batch,
            "data": _draw.data_name(reference_curves.DATA),
            "algorithm": _draw.algo_name(str(algo)),
            "density": -density,
            "source": "reference",
            "n": len(curves),
            "end (%)": statistics.fmean(ends),
            "below dense (points)": None,
            **_stretches(mean, group),
            **dict.fromkeys(("training loss", "times an entry moves", "a node's entry is sent")),
            "momentum": momentum.AFTER,
            "each seed's end (%)": ", ".join(f"{value:.2f}" for value in ends),
        }
