"""Finds seconds of one node, all timed by one kind of machine, for settings whose curves are compared."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from repro.config.groups import about_known
from repro.report import same_machine
from repro.report.as_published import OPTIONS, other_options
from repro.report.group import Group
from repro.report.summaries import Results

MADE_FOR = "iteration_times"  # times the settings whose curves are compared
TRAINED = ("convergence", "momentum")  # others with such times, for those who have not run it


def groups(results: Results) -> list[Group]:
    """Returns the timed runs of the experiment that is made for it, or else those of training."""
    every = (
        [group for name in names for group in results.groups(name) if group.time] for names in ((MADE_FOR,), TRAINED)
    )
    return next(filter(None, every), [])


def on_one_machine(chosen: Sequence[Group], timed: Iterable[Group]) -> list[Group]:
    """Returns the runs that one kind of machine timed: that which timed most of the chosen settings, then most runs.

    Those of `timed` count that have the network, batch, precision and P of the chosen ones.
    """
    wanted = {_timing(group) for group in chosen}
    like = [group for group in timed if any(_timing(group)[:4] == one[:4] for one in wanted)]
    kinds = [[group for group in like if same_machine.alike(group.machine, one.machine)] for one in like]
    return max(kinds, key=lambda own: (len(wanted & {_timing(one) for one in own}), len(own)), default=[])


def _timing(group: Group) -> tuple[Any, ...]:
    """Returns what decides a node's seconds: compute depends on the first four, compress on all."""
    settings, (own, _) = group.settings, options(group)
    parts = settings.get("bucket_mb"), settings.get("scope", "global"), bool(settings.get("hierarchical"))
    work = *(value for name, value in own.items() if name != "gain"), *other_options(settings), *parts
    return group.model, group.batch, settings["precision"], group.nodes, group.algo, settings["density"], work


def seconds(group: Group, here: Sequence[Group]) -> tuple[float, float] | None:
    """Returns the median compute of these runs, and compress of those like `group`; None where there is none."""
    like = [one.time.compress_s for one in here if one.time and _timing(one) == _timing(group)]
    if not like:
        return None
    return statistics.median(one.time.compute_s for one in here if one.time), statistics.median(like)


def options(group: Group) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns what a run did with its gradient and how pairs travelled, by option, and what is usual there."""
    usual = {**OPTIONS, "wire": "pairs"} | about_known(group.algo)
    return {name: group.settings["algo"].get(name, usual[name]) for name in (*OPTIONS, "wire")}, usual
