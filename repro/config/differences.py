"""In which settings several runs differ, as the command line names them: the columns that a table of them needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from repro.config.groups import KINDS

PLACES = ("results", "experiment", "wandb", "tradeoff")  # where a run is kept and mirrored
FIXED = ("sparse", "file", "root")  # of a group: follow from its name, or say where it lies


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns resolved settings by the keys of the command line: `algo` is its name, `algo.route` an option of it."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if key in KINDS:
            options = {name: option for name, option in value.items() if name not in ("name", "options", *FIXED)}
            found[key] = value["name"]
            found |= {f"{key}.{name}": option for name, option in {**options, **value.get("options", {})}.items()}
        elif key not in PLACES:
            found[key] = value
    return found


def differing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the keys of `flat` settings in which `rows` differ.

    An option of a group counts where rows of the same choice differ in it: that Top-k has no `algo.route` is no news.
    So does `density_warmup`, which only sparse algorithms have.
    """
    return [name for name in dict.fromkeys(name for row in rows for name in row) if _differs(name, rows)]


def _differs(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    first: dict[Any, Any] = {}
    group = name.partition(".")[0]
    for row in rows:
        if name not in row or (name == "density_warmup" and row["density"] == 1.0):
            continue
        choice = row[group] if "." in name else None
        if first.setdefault(choice, row[name]) != row[name]:
            return True
    return False
