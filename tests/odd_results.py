"""Results that are right but of another kind than the figures were made for: each changes one thing of every group."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from made_up_results import everything

from repro.report.summaries import Results

Group = dict[str, Any]
Change = Callable[[Group], object]


def _named(what: str, name: str) -> Change:
    def change(group: Group) -> None:
        group["settings"][what] = {**group["settings"][what], "name": name}

    return change


def _in_rows(where: str, **values: Any) -> Change:
    return lambda group: [row.update({k: v for k, v in values.items() if k in row}) for row in group[where]]


def _without(*names: str) -> Change:
    return lambda group: [record.pop(name, None) for record in group["recorded"] for name in names]


def _nodes(count: int) -> Change:
    def change(group: Group) -> None:
        group["settings"]["nodes"] = count
        for row in group["iteration_time"]:
            row["nodes"] = count

    return change


ODD: dict[str, Change] = {
    "on a network of its own": _in_rows("iteration_time", network="ethernet1g with alpha_s=0.0001"),
    "on the faster network alone": _in_rows("iteration_time", network="ethernet10g"),
    "measured": _in_rows("iteration_time", source="measured"),
    "with no time": lambda group: group.update(iteration_time=[]),
    "never evaluated": lambda group: group.update(curve=[], seed_accuracies=[]),
    "with no steps counted": lambda group: group.update(per_step={}),
    "with nothing counted": lambda group: group.update(per_step=dict.fromkeys(group["per_step"])),
    "with losses that overflowed": _in_rows("curve", train_loss=None, train_loss_std=None, test_loss=None),
    "of a network that is unknown here": _named("model", "mynet"),
    "of an algorithm that is unknown here": _named("algo", "mine"),
    "on other images": _named("data", "digits"),
    "on three nodes": _nodes(3),
    "on one node": _nodes(1),
    "with nothing recorded": lambda group: group.update(recorded=[]),
    "with no selections recorded": _without("selections", "result"),
    "with nothing selected": _in_rows("recorded", selected_mass=0.0, lost_mass=0.0, held_mass=0.0, kept=0),
    "with nothing sent": _in_rows("recorded", schedule=[[], []]),
}


def odd(name: str, beside: bool) -> Results:
    """The made-up results with every group changed; `beside` the groups as they were, or in their place."""
    results = everything()
    summaries = copy.deepcopy(results.summaries)
    for summary in summaries.values():
        if "groups" in summary:
            changed = copy.deepcopy(summary["groups"])
            for group in changed:
                ODD[name](group)
                group["runs"] = [f"odd-{run}" for run in group["runs"]]
            summary["groups"] = [*summary["groups"], *changed] if beside else changed
    return replace(results, summaries=summaries)
