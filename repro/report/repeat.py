"""Lists the committed trainings, each with the command that makes it again, which follows from its settings."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from typing import Any

from repro import tables
from repro.config.compose import compose, declared
from repro.config.differences import flat
from repro.config.schema import Config, ConfigError
from repro.config.sweeps import quote, swept
from repro.figures import _draw
from repro.report import same_machine, same_settings
from repro.report.group import Group
from repro.report.summaries import Results
from repro.tables import Row

LEAST = 100  # steps: shorter runs are for times and bytes, whose command their figure or table names
RESULT = {f.name for f in dataclasses.fields(Config) if f.metadata.get("result", True)}
HEAD = ("model", "algo", "data", "nodes")


def part(results: Results, _: str) -> str:
    """Returns a heading and a table of all committed trainings for each experiment that has some."""
    trained: dict[str, list[Group]] = {}
    for experiment, group in results.all_groups():
        if group.curve and group.curve[-1]["step"] >= LEAST:
            trained.setdefault(experiment, []).append(group)
    return "\n".join(
        f"## {experiment}\n\n{tables.to_markdown([_row(experiment, group) for group in groups])}"
        for experiment, groups in trained.items()
    )


def _row(experiment: str, group: Group) -> Row:
    last, git = group.curve[-1], group.machine.get("git") or {}
    value = last.get(group.metric.key)
    return {
        "network": _draw.model_name(group.model),
        "algorithm": _draw.algo_name(group.algo),
        "data": _draw.data_name(group.data) + (f" `{group.fingerprint}`" if group.fingerprint else ""),
        "n": group.n,
        "ended": None if value is None else f"epoch {group.epochs:g}: {group.metric.short(value)}",
        "trained on": ", ".join(filter(None, [same_machine.processor(group.machine), group.settings["precision"]])),
        "suite at": f"`{git['commit'][:7]}`{', changed' if git.get('dirty') else ''}" if git.get("commit") else None,
        "command": f"`{text}`" if (text := command(experiment, group)) else None,
    }


def command(experiment: str, group: Group) -> str:
    """Returns `repro run ...` for all seeds of a group, which is the same to the bit on a like machine.

    It names network, algorithm, data, P, the keys that the experiment sweeps, and those that differ from what it sets.
    Where the data lie is not in it. "" if a file of conf/ that it would name is not there.
    """
    own = _typed(same_settings.config(group.settings))
    try:
        keys = [*HEAD, *(swept(experiment) if experiment != "default" else [])]
        named = {key: own[key] for key in keys if key in own}
        usual = _usual(experiment, tuple(f"{key}={quote(value)}" for key, value in named.items()))
    except (ConfigError, FileNotFoundError):
        return ""
    named |= {key: value for key, value in own.items() if key not in named and usual.get(key, value) != value}
    words = [f"{key}={quote(value)}" for key, value in named.items()]
    return shlex.join(["repro", "run", *_head(experiment), *words, f"seed={','.join(map(str, group.seeds))}"])


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
    found = {}
    for key, value in own.items():
        group, _, option = key.partition(".")
        known = not option or option in declared(group, own[group])
        if group in RESULT and key not in follows and known:
            found[key] = value
    return found
