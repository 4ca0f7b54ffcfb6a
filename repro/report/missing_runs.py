"""Finds the runs of a sweep that no summary has, whatever the experiment that they were made for."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

from repro.config.schema import Config
from repro.report import prefixes
from repro.report.group import Group
from repro.report.summaries import Results


def find(sweep: Sequence[Config], results: Results) -> list[Config]:
    """Returns those of `sweep`, in its order, whose seed no group of their settings has, on any images.

    A longer run of the same schedule has the epochs of one that ends earlier.
    """
    of_setting: dict[str, list[Group]] = defaultdict(list)
    for _, group in results.all_groups():
        of_setting[prefixes.of_any_length(group)].append(group)
    return [one for one in sweep if not any(_has(group, one) for group in of_setting[_setting(one)])]


def _setting(config: Config) -> str:
    to_be = Group(dataclasses.asdict(config.of_seed(0)), "", [], [], {}, [], {}, [])
    return prefixes.of_any_length(to_be)


def _has(group: Group, config: Config) -> bool:
    by_epochs = config.steps is None and config.node is None  # that is how it ends, and it trains
    return config.seed in group.seeds and (not by_epochs or group.epochs >= config.epochs)
