"""Turns run folders into summaries. Needs no torch."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from repro.config.schema import Config, ConfigError
from repro.report import same_machine
from repro.report.curves import curve, middle, seed_accuracies
from repro.report.finished_run import Damaged, Run, read_run
from repro.report.group import Group, rounded
from repro.report.same_settings import Summary, content
from repro.runs import per_step
from repro.runs.run_folder import hidden, run_folders

NOT_SETTINGS = {
    "seed", "results", "experiment", "wandb", "tradeoff", "timeout_s", "compare_every", "checkpoint_every",
    "checkpoint_epochs", "cuda_graph",
}  # fmt: skip
Members = list[tuple[Path, Run]]
SINGLE = ("schedule", "selections", "result")  # of a record: kept of the last step alone, as they are long
MACHINE = ("versions", "cpu", "cpus", "processor", "rates", "allocator", "gpus", "device", "platform", "git")


def collect(
    runs: Path,
    only: Sequence[str] = (),
    stopped: bool = False,
    times: bool = True,
    existing: Mapping[str, Summary] = MappingProxyType({}),
) -> tuple[dict[str, Summary], list[str]]:
    """Returns summaries by experiment of the finished runs under `runs`, and one line for each folder that is left out.

    `stopped`: those that stopped count as far as they came. Without `times` their seconds are left out. Runs that a
    group of the `existing` summaries holds beside others, which are not here, stay as they are there.
    A damaged folder keeps no other from being collected. Raises ConfigError where there is no run at all.
    """
    found: dict[str, dict[str, list[Members]]] = defaultdict(lambda: defaultdict(list))
    left_out = []
    folders = run_folders(runs)
    begun = sorted({place.parent.name for place in folders})
    if not begun:
        raise ConfigError(
            f"{runs}: there are no runs in it. Type repro run experiment=quickstart first, or name the folder that "
            "results= named: --runs FOLDER."
        )
    if unknown := [name for name in only if name not in begun]:
        raise ConfigError(f"--only {', '.join(unknown)}: {runs} has no runs of it; there are {', '.join(begun)}.")
    places = [place for place in folders if not only or place.parent.name in only]
    theirs = [place for place in hidden(runs) if not only or {place.name, place.parent.name} & set(only)]
    left_out += [f"{place}: it may not be read" for place in theirs]
    for place in places:
        try:
            run = read_run(place, stopped)
        except Damaged as reason:
            left_out.append(f"{place}: {reason}")
            continue
        alike = found[place.parent.name][_plain(run.config).of_seed(0).run_id]
        of_this_data = (group for group in alike if all(_may_be_beside(run, other) for _, other in group))
        members = next(of_this_data, None)
        if members is None:
            alike.append(members := [])
        twin = next((member for member in members if member[1].config.seed == run.config.seed), None)
        if twin is None:
            members.append((place, run))
        else:  # one that stopped beside one that ends there, or a copy: it is no second seed
            left_out.append(f"{place}: {twin[0].name} is the same run, of seed {run.config.seed}")
    collected: dict[str, Summary] = {}
    for experiment, of_settings in sorted(found.items()):
        groups = list[dict[str, Any]]()
        for members in (members for _, alike in sorted(of_settings.items()) for members in alike):
            held = _held(members, existing.get(experiment, {"groups": []}))
            left_out += [f"{name}: left as it was, pooled with seeds that did not run again" for name in sorted(held)]
            if new := [member for member in members if member[0].name not in held]:
                groups.append(summarize(new) | ({} if times else {"iteration_time": [], "timed_runs": 0}))
        collected[experiment] = {"experiment": experiment, "groups": groups}
    return collected, left_out


def _held(members: Members, summary: Summary) -> set[str]:
    """Returns the names of those runs that a group of the summary holds beside others, which are not among `members`.

    A group's mean cannot be taken apart; new seeds come to it all the same. Names do not depend on the images, so that
    a run of others is none that a group holds.
    """
    names, first = {place.name for place, _ in members}, members[0][1]
    pooled = [
        set(group["runs"])
        for group in summary["groups"]
        if group["settings"]["epochs"] == first.config.epochs and content(group).may_be(first.content)
    ]
    return {name for runs in pooled if not runs <= names for name in runs & names}


def _may_be_beside(run: Run, other: Run) -> bool:
    """Returns whether two runs may be of one group: of one data set, and not of one seed but another `algo.seed`."""
    same = run.config.seed != other.config.seed or _plain(run.config).run_id == _plain(other.config).run_id
    return same and other.content.may_be(run.content)


def _plain(config: Config) -> Config:
    """Returns settings as of a run that had its folder for itself: of what images it is, its group says."""
    return dataclasses.replace(config, data=dataclasses.replace(config.data, fingerprint=""))


def summarize(members: Members) -> dict[str, Any]:
    """Returns one group as JSON, from runs that differ only in their seed."""
    members = sorted(members, key=lambda member: member[1].config.seed)
    runs = [run for _, run in members]
    first = runs[0]
    settings = {k: v for k, v in dataclasses.asdict(_plain(first.config).of_seed(0)).items() if k not in NOT_SETTINGS}
    del settings["data"]["root"]  # a place on that machine
    evaluations = [run.of("eval") for run in runs]
    times = [run.of("iteration_time") for run in runs if same_machine.alike(run.timed_on, first.timed_on)]
    group = Group(
        settings=settings,
        data=first.content.description,
        fingerprint=max(run.content.fingerprint for run in runs),  # "" is the least
        seeds=[run.config.seed for run in runs],
        runs=[place.name for place, _ in members],
        machine={k: first.timed_on[k] for k in MACHINE if k in first.timed_on},
        curve=curve(evaluations, first.config.data.metric),
        per_step=per_step.counted(first.metrics),
        iteration_time=middle(times),
        timed_runs=len([one for one in times if one]),
        recorded=[_short(seen) for seen in first.recorded[:-1]] + first.recorded[-1:],
        seed_accuracies=seed_accuracies(evaluations, first.config.data.metric),
        seed_rates=[
            {"seed": run.config.seed, "samples_per_s": rate, "processor": same_machine.processor(run.timed_on)}
            for run in runs
            if (rate := _quiet(run)) is not None
        ],
    )
    return rounded(dataclasses.asdict(group))


def _quiet(run: Run) -> float | None:
    """Returns the upper quartile of a run's samples a second, which what else its machine did has slowed least.

    None where another kind of machine went on with it.
    """
    rates = [line["samples_per_s"] for line in run.of("eval") if line.get("samples_per_s") is not None]
    sessions = [one for one in [*run.provenance.get("earlier", []), run.provenance] if isinstance(one, dict)]
    kinds = {str([session.get(name) for name in same_machine.WHAT]) for session in sessions}
    if not rates or len(kinds) > 1:
        return None
    return statistics.quantiles(rates, n=4, method="inclusive")[-1] if len(rates) > 1 else rates[0]


def _short(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in SINGLE}
