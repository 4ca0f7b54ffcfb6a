"""Says which iterations of a lab experiment's sweep were measured, from its file in conf/ and the rows of a figure."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable

import yaml

from repro.config.groups import conf_folder
from repro.figures import _draw
from repro.tables import Row

AXES = ("model", "node", "algo", "nodes", "overlap")  # by which a sweep's iterations are told apart
Cell = tuple[object, ...]


@functools.cache
def cells(experiment: str) -> tuple[Row, ...]:
    """Returns the iterations of the experiment's sweep, by AXES. Hydra would take a quarter of a second for each."""
    text = (conf_folder() / "experiment" / f"{experiment}.yaml").read_text()
    parts = yaml.safe_load(text)["sweep"]
    found = []
    for part in parts:
        values = {"node": "", "overlap": "off"} | part
        axes = [value if isinstance(value := values[name], list) else [value] for name in AXES]
        found += [dict(zip(AXES, point, strict=True)) for point in itertools.product(*axes)]
    return tuple(found)


def said(rows: Iterable[Row], experiment: str, wanted: Callable[[Row], bool] = lambda _: True) -> str:
    """Returns how many of the sweep's `wanted` iterations are among `rows`: for each number of nodes, and of which
    models where some are missing."""
    every = [cell for cell in cells(experiment) if wanted(cell)]
    there = {_place(row) for row in rows}
    parts = []
    for nodes in sorted({cell["nodes"] for cell in every}, reverse=True):
        mine = [cell for cell in every if cell["nodes"] == nodes]
        parts.append(f"{_counted(mine, there)} on {nodes} nodes{_models(mine, there)}")
    whole = len(cells(experiment))
    drawn = (
        f" drawn here of experiment={experiment}'s {whole}" if len(every) < whole else f" of experiment={experiment}"
    )
    return f"Measured: {_counted(every, there)} iterations{drawn}; {', '.join(parts)}."


def _models(some: list[Row], there: Collection[Cell]) -> str:
    """Returns of which models some or all are there, where not all are."""
    found = []
    for model in _draw.models_of(some):
        own = [cell for cell in some if cell["model"] == model]
        if count := _there(own, there):
            found.append(_draw.model_name(model) + (f" {count} of {len(own)}" if count < len(own) else ""))
    return f" ({', '.join(found)})" if 0 < _there(some, there) < len(some) else ""


def _place(cell: Row) -> Cell:
    return tuple(cell[name] for name in AXES)


def _there(some: list[Row], there: Collection[Cell]) -> int:
    return sum(_place(cell) in there for cell in some)


def _counted(some: list[Row], there: Collection[Cell]) -> str:
    return f"{_there(some, there)} of {len(some)}"
