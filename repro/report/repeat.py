"""Lists the committed trainings, each with the command that makes it again, which follows from its settings."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Sequence
from typing import Any

from repro.config.compose import compose, declared
from repro.config.differences import flat
from repro.config.schema import Config, ConfigError
from repro.config.sweeps import quote, swept
from repro.figures import _draw
from repro.report import same_machine, same_settings
from repro.report.group import Group
from repro.report.summaries import Results
from repro.runs.run_name import RESULT

LEAST = 100  # steps: shorter runs are for times and bytes, whose command their figure or table names
HEAD = ("model", "algo", "data", "nodes")
GROUPS = ("cluster", "network")
NETWORK = "ethernet1g"  # named where one is not in conf/, beside all that its numbers are


def part(results: Results, _: str) -> str:
    """Returns a heading and all committed trainings for each experiment that has some."""
    trained: dict[str, list[Group]] = {}
    for experiment, group in results.all_groups():
        if group.curve and group.curve[-1]["step"] >= LEAST:
            trained.setdefault(experiment, []).append(group)
    lines = []
    for experiment, groups in trained.items():
        lines += [f"## {experiment}", "", "```sh", *(_said(experiment, group) for group in groups), "```", ""]
    return "\n".join(lines)


def _said(experiment: str, group: Group) -> str:
    """Returns a comment on how the training ended, and of what it is, and its command on a line of its own.

    Of a group only the machine on which one seed began is known.
    """
    last, git = group.curve[-1], group.machine.get("git") or {}
    value = last.get(group.metric.key)
    ended = "no number" if value is None else group.metric.said(value)
    torch = group.machine.get("versions", {}).get("torch")
    seed = group.seeds[0] if group.machine_seed is None else group.machine_seed
    begun = [
        same_machine.processor(group.machine) or "a processor that was not recorded",
        torch and f"torch {torch}",
        git.get("commit") and f"suite at {git['commit'][:7]}{', changed' if git.get('dirty') else ''}",
    ]
    where = [
        group.settings["precision"],
        f"seed {seed} begun on {', '.join(filter(None, begun))}",
        f"data {group.fingerprint or 'not recorded'}",
    ]
    what = ", ".join([_draw.model_name(group.model), _draw.algo_name(group.algo), _draw.data_name(group.data)])
    title = f"# {what}: {ended} after {group.epochs:g} epochs, n = {group.n} ({'; '.join(where)})"
    return f"{title}\n{command(experiment, group) or '# conf/ has not all that it names'}"


def command(experiment: str, group: Group) -> str:
    """Returns `repro run ...` for all seeds of a group, which is the same to the bit on a like machine.

    Where the data lie is not in it. "" if a file of conf/ that it would name is not there.
    """
    return of_config(experiment, same_settings.config(group.settings), group.seeds)


def of_config(experiment: str, config: Config, seeds: Sequence[int]) -> str:
    """Returns `repro run ...` for these seeds of a configuration; "" if a file of conf/ that it names is not there.

    It names network, algorithm, data, P, the keys that the experiment sweeps, and those that differ from what it sets.
    """
    own = _typed(config)
    try:
        keys = [*HEAD, *(swept(experiment) if experiment != "default" else [])]
        named = {key: own[key] for key in keys if key in own}
        usual = _usual(experiment, _words(named))
        if groups := [key for key in GROUPS if key not in named and own[key] != usual[key]]:
            named |= {key: own[key] for key in groups}  # with which their other keys come
            usual = _usual(experiment, _words(named))
    except (ConfigError, FileNotFoundError):
        return ""
    named |= {key: value for key, value in own.items() if key not in named and usual.get(key) != value}
    return shlex.join(["repro", "run", *_head(experiment), *_words(named), f"seed={','.join(map(str, seeds))}"])


def _words(named: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}={quote(value)}" for key, value in named.items())


@functools.cache  # composing takes a twentieth of a second, and many groups differ in other keys than these
def _usual(experiment: str, named: tuple[str, ...]) -> dict[str, Any]:
    """Returns what the experiment sets where these keys are typed: they leave one point of its sweep."""
    return _typed(compose([*_head(experiment), *named, "seed=0"])[0])


def _head(experiment: str) -> list[str]:
    return [] if experiment == "default" else [f"experiment={experiment}"]


def _typed(config: Config) -> dict[str, Any]:
    """Returns the settings that change a result and can be typed, but the seed, which a group has several of."""
    own = flat(dataclasses.asdict(config))
    follows = ["seed", *(["algo.seed"] if config.draws_by_seed else [])]
    found, stated = {}, bool(declared("network", config.network.name))
    for key, value in own.items():
        group, _, option = key.partition(".")
        known = not option or option in declared(group, own[group]) or (group == "network" and not stated)
        if group in RESULT and key not in follows and known:
            found[key] = value
    if not stated:  # it is of a file, or was changed: its numbers are what counts
        found["network"] = NETWORK
    return found
