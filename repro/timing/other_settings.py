"""Names committed runs that reached a target with settings that a ranking does not have, as what to type for them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from repro.config.compose import compose
from repro.config.groups import about, is_known
from repro.config.schema import Config
from repro.config.sweeps import quote
from repro.report import time_to_target
from repro.report.as_published import OPTIONS
from repro.report.group import Group
from repro.timing import to_target


def said(target: float, configs: Sequence[Config], groups: Sequence[Group]) -> list[str]:
    """Returns lines on such runs of the model, data, P and batch of `configs`, on the schedule as it is written.

    Their images and precision are those of the curves that are ranked if such runs got there, or else of the first.
    """
    first = configs[0]
    others = [group for group in groups if _is_beside(group, first)]
    compared = to_target.comparable(target, configs, groups)
    unlike = [group for group in others if not any(to_target.of(config, [group]) for config in configs)]
    named = time_to_target.beside(unlike, compared, target)
    if not named:
        return []
    return [
        f"with other settings, committed runs reached {target:g} on {first.nodes} nodes too (their best, and when they "
        "got there); type the words of one here to rank it:",
        *(f"  {shlex.join(typed(one.group))}  ({one.group.metric.short(one.best)}; {one.said()})" for one in named),
    ]


def _is_beside(group: Group, config: Config) -> bool:
    settings = group.settings
    return (
        (group.model, group.nodes) == (config.model.name, config.nodes)
        and to_target.inputs_alike(settings, config)
        and group.batch == config.batch
        and not (group.compressed or settings.get("bucket_mb") or settings.get("hierarchical"))
        and is_known(group.algo)
    )


def typed(group: Group) -> list[str]:
    """Returns the words that give a run's algorithm all that differs from its file and its network's."""
    settings, algo = group.settings, group.settings["algo"]
    words = [f"algo={group.algo}"] + [f"density={settings['density']:g}"] * (settings["density"] < 1)
    (usual,) = compose([f"model={group.model}", f"data={settings['data']['name']}", *words])
    kept = {name: settings[name] for name in (*to_target.STEPPED, "lr_drops")}
    kept["lr_warmup_from"] = settings.get("lr_warmup_from", "nodes")
    kept["weight_decay_of"] = settings.get("weight_decay_of", "all")
    kept["clip_grad"] = settings.get("clip_grad") or 0.0
    if settings["density"] < 1:
        kept["density_warmup"] = settings.get("density_warmup", usual.density_warmup)
    words += [
        f"{name}={_written(value)}" for name, value in kept.items() if not to_target.equal(value, getattr(usual, name))
    ]
    own = {name: algo.get(name, default) for name, default in {**OPTIONS, "wire": "pairs"}.items()}
    declared = about(group.algo)
    words += [
        f"algo.{name}={_written(value)}"
        for name, value in own.items()
        if name in declared and not to_target.equal(value, getattr(usual.algo, name))
    ]
    return words + [
        f"algo.{name}={_written(value)}"
        for name, value in algo["options"].items()
        if not to_target.equal(value, usual.algo.options.get(name))
    ]


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else quote(value)
