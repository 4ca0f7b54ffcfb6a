"""Names lines and marks by their algorithm and by what their runs differ in, so that unlike runs never share one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from repro.config import groups
from repro.figures import _draw
from repro.report import momentum
from repro.report.as_published import other_options
from repro.report.group import Group
from repro.tables import Row

WORDS: dict[str, Callable[[Any], str]] = {
    "model": _draw.model_name,
    "nodes": "P = {}".format,
    "batch_per_node": "batch {}".format,
    "density": "ρ = {:g}".format,
    "k": "k = {:,}".format,
    "schedule": str,
    "data": _draw.data_name,
    "precision": str,
}
OF_PAIRS = ("density", "k")  # a dense vector has all entries


def of_each(rows: Sequence[Row], *settings: str) -> list[str]:
    """Returns a name for each row: its algorithm, and its values of those `settings` of which the rows have several."""
    told = [{name: _value(row, name) for name in settings} for row in rows]
    differ = [name for name in settings if len({own[name] for own in told} - {None}) > 1]
    return [
        ", ".join([_draw.algo_name(row["algo"]), *(WORDS[n](own[n]) for n in differ if own[n] is not None)])
        for row, own in zip(rows, told, strict=True)
    ]


def lines(rows: Sequence[Row], *settings: str) -> dict[str, list[Row]]:
    """Returns the rows by their names: those of one line together, in their order, the lines as algorithms are."""
    found: dict[str, list[Row]] = {}
    order = _draw.algos_of(rows)
    named = sorted(zip(of_each(rows, *settings), rows, strict=True), key=lambda one: order.index(one[1]["algo"]))
    for name, row in named:
        found.setdefault(name, []).append(row)
    return found


def of_group(group: Group) -> str:
    """Returns a group's algorithm and, in brackets, what of its rules and its size of updates is not as usual."""
    algo = group.settings["algo"]
    more = other_options(group.settings)
    more += ["delivered"] * (algo.get("mask") == "delivered") + ["clipped"] * bool(algo.get("clip"))
    more += [f"boost {algo['boost']:g}"] if algo.get("boost", 1.0) != 1 else []
    decay, usual = group.settings["weight_decay"], groups.default(group.model, "weight_decay")
    more += [f"decay {decay:g}"] if usual is not None and decay != usual else []
    effective = momentum.effective_lr(group.settings)
    more += [] if effective == momentum.usual_lr(group.model) else [f"lr {effective:g}"]
    return _draw.algo_name(group.algo) + (f" ({', '.join(more)})" if more else "")


def _value(row: Row, name: str) -> Any:
    whole = row.get("density") == 1 or row.get("k", 0) == row.get("parameters")
    return None if name in OF_PAIRS and whole else row[name]
