"""Tells runs of an algorithm by its own rules, whatever they were for, and finds those that stand beside others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from repro.config import groups
from repro.metric import ACCURACY
from repro.report import prefixes
from repro.report.as_published import OPTIONS, as_published, other_options, other_schedule
from repro.report.group import Group, alike
from repro.report.momentum import effective_lr
from repro.report.summaries import Results

FITTED = {"warmup_steps"}  # QAdam's, which is a share of all steps


def by_own_rules(settings: dict[str, Any]) -> bool:
    """Returns whether a run selects, applies and schedules as the algorithm's and the network's files say."""
    settings = _with_gain(settings)
    return as_published(settings) and not other_schedule(settings) and not _typed_options(settings)


def _with_gain(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings in which a rate that is as many times the usual one as the algorithm's gain is that gain."""
    algo, usual = settings["algo"], groups.default(settings["model"]["name"], "lr")
    gained = settings | {"lr": usual, "algo": algo | {"gain": groups.about_known(algo["name"]).get("gain", 1.0)}}
    as_much = usual and algo.get("gain", 1.0) == 1 and effective_lr(settings) == effective_lr(gained)
    return gained if as_much else settings


def _other_rules(settings: dict[str, Any]) -> list[str]:
    """Says in what a run is not by the algorithm's and the network's files; [] where it is."""
    if by_own_rules(settings):
        return []
    algo, own = settings["algo"], groups.about_known(settings["algo"]["name"])
    other = [f"{name} {algo[name]}" for name, usual in OPTIONS.items() if algo.get(name, usual) != own.get(name, usual)]
    typed = [f"{name} {value}" for name, value in _typed_options(settings).items() if name not in ("route", "residual")]
    return [*other_schedule(settings), *other_options(settings), *other, *typed] or ["not by its own rules"]


def _typed_options(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the algorithm's options that are not those of its file, but for what is fitted to a training's length."""
    own = groups.about_known(settings["algo"]["name"])
    usual = FITTED | {name for name, value in own.items() if str(value).startswith("${")}  # as the seed
    options = settings["algo"]["options"].items()
    return {name: value for name, value in options if name not in usual and own.get(name, value) != value}


class Setting(NamedTuple):
    """Holds the groups of one setting, the experiment's own first, and where its runs end: an epoch, and in words.

    The words also say by what other rules than its own an algorithm was run.
    """

    groups: list[Group]
    epoch: float
    schedule: str


def of_most(schedules: Iterable[list[Setting]]) -> list[Setting]:
    """Returns of `by_schedule` the one with the most algorithms."""

    def algos(settings: list[Setting]) -> tuple[int, bool]:
        return len({one.groups[0].algo for one in settings}), not settings[0].groups[0].compressed

    return max(schedules, key=algos, default=[])


def by_schedule(results: Results, experiment: str) -> list[list[Setting]]:
    """Returns the settings of an experiment's runs over each of its schedules.

    Over a schedule as it is written, runs of other experiments by an algorithm's own rules that got as far count as if
    of this one: on as many nodes, with the same data, batch and precision, dense or at its densities.
    """
    every = [(name, group) for name in sorted(results.summaries) for group in results.as_timed(name)]
    accurate = [(name, group) for name, group in every if group.metric is ACCURACY and group.curve]
    own, others = ([group for name, group in accurate if (name == experiment) is here] for here in (True, False))
    schedules = dict.fromkeys(group.schedule for group in own)
    return [_settings([group for group in own if group.schedule == schedule], others) for schedule in schedules]


def _settings(own: list[Group], others: Iterable[Group]) -> list[Setting]:
    """Returns one for each algorithm and density among runs alike.

    It is the one by the algorithm's own rules, where there is one; then that of the most seeds, then the experiment's.
    """
    ends = {prefixes.kind(group): group.epochs for group in own}
    beside = [group for group in others if not group.compressed and _is_beside(group, own, ends)]
    runs = {run for group in own for run in group.runs}
    chosen: dict[tuple[Any, ...], list[Group]] = {}
    settings = prefixes.of_one_setting(alike([*own, *beside]))  # with one compute, whatever they were for

    def place(same: list[Group]) -> tuple[bool, int, bool]:
        first = same[0]
        return by_own_rules(first.settings), _seeds(same), first.runs[0] in runs

    for same in sorted(settings, key=place):
        chosen[prefixes.kind(same[0]), same[0].algo, same[0].settings["density"]] = same
    return [
        Setting(same, ends[prefixes.kind(same[0])], ", ".join([own[0].schedule, *_other_rules(same[0].settings)]))
        for same in chosen.values()
    ]


def _is_beside(group: Group, own: Iterable[Group], ends: dict[tuple[object, ...], float]) -> bool:
    return (
        group.settings["density"] in {1.0, *(one.settings["density"] for one in own)}
        and any(row["epoch"] == ends.get(prefixes.kind(group)) for row in group.curve)
        and by_own_rules(group.settings)
    )


def _seeds(same: Iterable[Group]) -> int:
    return len({seed for group in same for seed in group.seeds})
