"""Which groups of two summaries are of the same settings, and of the same data."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from repro.config.schema import Config, from_dict
from repro.data import Content
from repro.json_text import json_text

GroupJson = dict[str, Any]  # a report.group.Group as summaries have it
Summary = dict[str, Any]


def identity(group: GroupJson, whole: bool = False) -> str:
    """Returns the run id of the settings with seed 0, of old runs too: keys that came later have their default.

    It is the same for all data: of what images a group is, it says beside its settings.
    `whole`: of the whole schedule, whose first epochs are those of a group that ends earlier and is not compressed.
    """
    settings = group["settings"]
    if whole:
        settings = settings | {"epochs": settings["schedule_epochs"]}
    return _run_id(json_text(_of_a_run(settings)))


def config(settings: dict[str, Any]) -> Config:
    """Returns a group's settings as a run of seed 0 has them. Raises ConfigError."""
    return from_dict(_of_a_run(settings))


def _of_a_run(settings: dict[str, Any]) -> dict[str, Any]:
    return settings | {"seed": 0, "data": settings["data"] | {"root": ".", "fingerprint": ""}}


@cache  # every figure asks for every group, most more than once
def _run_id(settings: str) -> str:
    return from_dict(json.loads(settings)).run_id


def same_data(a: GroupJson, b: GroupJson) -> bool:
    """Returns whether two groups were trained on the same images, as far as is known: old ones have just a text."""
    return content(a).may_be(content(b))


def content(group: GroupJson) -> Content:
    return Content(group["data"], group.get("fingerprint", ""))


def went_on(group: GroupJson, new: Summary) -> bool:
    """Returns whether `new` has the runs of a group that was collected when they had stopped, with more epochs now."""
    return any(
        set(group["runs"]) <= set(later["runs"])
        and group["settings"]["epochs"] < later["settings"]["epochs"]
        and same_data(group, later)
        for later in new["groups"]
    )


def put_over(there: Summary, new: Summary) -> Summary:
    """Returns `there` with the groups of `new` in place of those of the same settings and data, or of the same runs
    when they had stopped; all others stay.
    """
    again: dict[str, list[GroupJson]] = {}
    for group in new["groups"]:
        again.setdefault(identity(group), []).append(group)
    kept = [
        group
        for group in there["groups"]
        if not went_on(group, new) and not any(same_data(group, other) for other in again.get(identity(group), []))
    ]
    return {**there, **new, "groups": sorted([*kept, *new["groups"]], key=identity)}
