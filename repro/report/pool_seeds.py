"""Summaries of other seeds, taken at another time or on another machine, pooled with those that are there.

A group's mean, sample deviation and n are all that its runs leave behind; they suffice to pool it (Chan et al., 1979).
"""

from __future__ import annotations

import math
from typing import Any

from repro.config import ConfigError, from_dict
from repro.results import CURVE, middle, rounded
from repro.tables import Row

Group = dict[str, Any]  # results.Group as JSON


def pool(there: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A summary with the groups of both: new seeds of a setting join those there, or replace them if all ran again.

    Runs that are in it already, beside others, stay. Raises ConfigError where only some of the new are: a mean cannot
    be taken apart.
    """
    groups = {identity(group): group for group in there["groups"]}
    for group in new["groups"]:
        name = identity(group)
        groups[name] = _pooled(groups[name], group) if name in groups else group
    return {**new, "groups": [group for _, group in sorted(groups.items())]}


def identity(group: Group) -> str:
    """The run id of the settings with seed 0: that of old runs too, as keys that came later have their default."""
    settings = group["settings"]
    return from_dict(settings | {"seed": 0, "data": settings["data"] | {"root": ""}}).run_id


def _pooled(there: Group, new: Group) -> Group:
    again = set(there["seeds"]) & set(new["seeds"])
    if again == set(there["seeds"]):
        return new
    if set(new["runs"]) <= set(there["runs"]):
        return there
    if again:
        raise ConfigError(
            f"{new['runs'][0]}: the summary holds seeds {_text(there['seeds'])} and the runs here are of seeds "
            f"{_text(new['seeds'])}. A mean cannot be taken apart: give runs of all of its seeds, or of others alone."
        )
    sizes = len(there["seeds"]), len(new["seeds"])
    members = sorted(zip(there["seeds"] + new["seeds"], there["runs"] + new["runs"], strict=True))
    later = {row["epoch"]: row for row in new["curve"]}
    pooled = there | {
        "seeds": [seed for seed, _ in members],
        "runs": [run for _, run in members],
        "curve": [_row(row, later[row["epoch"]], *sizes) for row in there["curve"] if row["epoch"] in later],
        "iteration_time": middle([there["iteration_time"]] * sizes[0] + [new["iteration_time"]] * sizes[1]),
    }
    return rounded(pooled)


def _row(a: Row, b: Row, n_a: int, n_b: int) -> Row:
    """Mean and sample deviation of both, from each one's."""
    row = dict(a)
    n = n_a + n_b
    for name in CURVE:
        if a[name] is None or b[name] is None:
            row |= {name: None, f"{name}_std": None}
            continue
        apart = b[name] - a[name]
        squares = sum((r[f"{name}_std"] or 0.0) ** 2 * (m - 1) for r, m in ((a, n_a), (b, n_b)))
        squares += apart**2 * n_a * n_b / n
        row |= {name: a[name] + apart * n_b / n, f"{name}_std": math.sqrt(squares / (n - 1))}
    return row


def _text(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds))
