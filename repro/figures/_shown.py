"""Selects the runs whose curves are drawn beside each other, and says which of them share a panel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from repro.figures import _draw
from repro.report.as_published import as_published, other_schedule
from repro.report.group import Group


def of_one_schedule(groups: Sequence[Group]) -> list[Group]:
    """Selects, for each model, runs over the same schedule: curves of unlike schedules never share a panel.

    Variants of an algorithm are left out, as their curves would have its name. If there are uncompressed runs, it takes
    these: of each setting the longest, whole or its first epochs, on the usual schedule if there is one; other
    data or another precision if they got half as far as any on their P, and images that were encoded once more only if
    one of these runs got farther than on the originals, or has none there. Otherwise it takes those compressed to one
    number of epochs: the one with the most settings to compare, and of several the largest; likewise one each.
    """
    usual = [group for group in groups if as_published(group.settings)]
    return [chosen for model in dict.fromkeys(g.model for g in usual) for chosen in _of_one_schedule(usual, model)]


def _of_one_schedule(groups: Iterable[Group], model: str) -> list[Group]:
    of_model = [group for group in groups if group.model == model]
    as_it_is = [group for group in of_model if not group.compressed]
    if not as_it_is:
        counts = Counter(group.settings["epochs"] for group in of_model)
        epochs = max(counts, key=lambda epochs: (counts[epochs], epochs))
        return _one_each([group for group in of_model if group.settings["epochs"] == epochs])
    longest = _one_each(as_it_is)
    ends: dict[Any, float] = {}
    for group in longest:
        for place in (group.nodes, panel(group)):
            ends[place] = max(ends.get(place, 0), _length(group))
    shown = [group for group in longest if 2 * ends[panel(group)] >= ends[group.nodes]]
    originals = {_of_images(group): _length(group) for group in shown if not group.encoded}
    wanted = {panel(group) for group in shown if originals.get(_of_images(group), 0) < _length(group)}
    return [group for group in shown if not group.encoded or panel(group) in wanted]


def _length(group: Group) -> float:
    """Returns the epochs that a run was to have; of one that was to stop after some steps, those that it has."""
    return group.settings["epochs"] if group.settings["steps"] is None else group.epochs


def _one_each(groups: Sequence[Group]) -> list[Group]:
    """Selects one curve for each that has a name of its own: on the usual schedule if any is, then the longest."""
    chosen: dict[tuple[Any, ...], Group] = {}
    for group in sorted(groups, key=lambda group: (not other_schedule(group.settings), group.epochs, group.n)):
        chosen[*_without_data(group), group.data] = group
    return [group for group in groups if group in chosen.values()]


def _without_data(group: Group) -> tuple[Any, ...]:
    """Returns what tells the curves of one network on one data set apart."""
    return group.algo, group.settings["density"], group.batch, group.nodes, group.settings["precision"]


def _of_images(group: Group) -> tuple[Any, ...]:
    """Returns what runs on the same images share, whether these were encoded once more or not."""
    return group.settings["data"]["name"], *_without_data(group)


def panel(group: Group) -> tuple[Any, ...]:
    """Returns what curves must share, beside the network, to be compared in one panel."""
    return group.nodes, group.data, group.settings["precision"]


def words(of: tuple[Any, ...]) -> tuple[str, ...]:
    return f"P = {of[0]}", _draw.data_name(of[1]), of[2]
