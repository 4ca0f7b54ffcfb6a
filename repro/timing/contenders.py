"""Names what competes on a map of the fastest algorithm, and tells by committed runs what may stand on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from repro.config.schema import Config
from repro.report import near_dense, summaries
from repro.report.group import rounded
from repro.report.near_dense import Ending
from repro.timing.predict import label, relaxes


def density_of(configs: Sequence[Config]) -> float | None:
    """Returns the density of a map: that of its first sparse algorithm. Those of another have it in their names."""
    return next((config.density for config in configs if config.algo.sparse), None)


def contender(config: Config, density: float | None) -> str:
    """Returns the name of an algorithm on a map of this density."""
    return label(config) + (f", density {config.density:g}" if _is_other(config, density) else "")


def _is_other(config: Config, density: float | None) -> bool:
    # a map that was read from its file has the density in a summary's six digits
    return config.algo.sparse and density is not None and rounded(config.density) != rounded(density)


def timed_as(config: Config, density: float | None) -> str:
    """Returns the name under which compress is kept: that of a contender in one bucket."""
    return contender(dataclasses.replace(config, bucket_mb=None), density)


def beside_dense(configs: Sequence[Config], density: float | None, sizes: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Returns by number of nodes how far each contender ends below dense, in points, and whether it is on a map.

    One with the map's density is judged by the algorithm's own rules; another, by runs of its own gain and format.
    """
    committed, found = summaries.load(), dict[str, list[Ending | None]]()
    for nodes in sizes:
        by_name = near_dense.endings(committed, nodes, density)
        found[str(nodes)] = [
            near_dense.ending(committed, nodes, config.algo, config.density)
            if _is_other(config, density)
            else by_name.get(config.algo.name)
            for config in configs
        ]
    exact = [relaxes(config.algo) == "exact" for config in configs]
    return {
        "below_dense": {
            nodes: [None if end is None else round(-end.points, 2) for end in ends] for nodes, ends in found.items()
        },
        "on_map": {
            nodes: [own or (end is not None and end.near) for own, end in zip(exact, ends, strict=True)]
            for nodes, ends in found.items()
        },
    }
