"""Lists what sparse S-SGD learns on 32 nodes, by density, size of updates and who sends an entry (not in the paper)."""

from typing import Any

from repro.config import groups
from repro.figures import _curves, _draw
from repro.metric import ACCURACY
from repro.report import momentum, moves, prefixes
from repro.report.as_published import other_schedule
from repro.report.group import Group
from repro.report.prefixes import Pooled
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "What sparse S-SGD lacks on many nodes, and in as few steps on four"
COMMAND = "repro run experiment=many_nodes"
ALSO = (_curves.CONVERGENCE,)


def table(results: Results) -> list[Row]:
    """Returns a row for each setting on the nodes of the experiment, where its shortest run ends, the best one first.

    Whole runs stand beside it, if all but algorithm, density and size of updates is the same. If the experiment has a
    whole run of its own, they follow where they end.
    """
    every = [group for group in results.groups("many_nodes", ACCURACY) if group.curve]
    whole = results.groups("convergence", ACCURACY)
    rows = []
    for kind in sorted(set(map(prefixes.kind, every)), key=str):
        own = [group for group in every if prefixes.kind(group) == kind]
        beside = [group for group in whole if prefixes.kind(group) == kind]
        shortest = min(own, key=lambda group: group.epochs)
        ends = {group.epochs: group.schedule for group in own if group.whole or group is shortest}
        rows += [row for epoch in sorted(ends) for row in _at([*own, *beside], epoch, ends[epoch], results)]
    return rows


def _at(groups: list[Group], epoch: float, schedule: str, results: Results) -> list[Row]:
    over = prefixes.averaged(groups[0], epoch)
    pooled = prefixes.at_epoch(groups, epoch, over)
    dense = next((one for one in pooled if one.group.algo == "dense" and not other_schedule(one.group.settings)), None)
    known = results.networks
    rows = (_row(one, epoch, schedule, over, dense, known) for one in pooled)
    return sorted(rows, key=lambda row: -row["test accuracy (%)"])


def _row(pooled: Pooled, epoch: float, schedule: str, over: int, dense: Pooled | None, known: dict[str, Any]) -> Row:
    group, settings = pooled.group, pooled.group.settings
    run = group.algo, moves.selections(group, epoch, known), group.nodes
    return {
        "algorithm": _draw.algo_name(group.algo),
        "density": settings["density"],
        "lr / (1 - momentum)": momentum.effective_lr(settings),
        "schedule": schedule,
        "n": pooled.n,
        "seeds": pooled.seeds,
        "test accuracy (%)": pooled.mean,
        "below dense (points)": None if dense is None else dense.above(pooled).mean,
        "training loss": group.at(epoch)["train_loss"] if pooled.n == group.n else None,  # of one group's seeds
        "busiest node (bytes a step)": group.busiest_bytes,
        "times an entry moves": moves.moves(*run),
        "a node's entry is sent": moves.sent(*run),
        "momentum": momentum.rule(settings),
        "format": _format(group),
        "epochs averaged": over,
        "nodes": group.nodes,
        "batch per node": group.batch,
        "model": _draw.model_name(group.model),
        "data": _draw.data_name(group.data),
        "precision": settings["precision"],
    }


def _format(group: Group) -> str | None:
    """Returns in which format pairs travel; None for an algorithm that sends none, whose settings have a default."""
    own = group.settings["algo"]
    known = groups.about_known(group.algo) or own
    return own.get("wire", "pairs") if "wire" in known else None
