"""Names a run for people, as W&B shows it beside others of its group."""

from __future__ import annotations

import dataclasses
from typing import Any

from repro.config.compose import compose, declared
from repro.config.differences import differing, flat
from repro.config.groups import title
from repro.config.schema import Config, ConfigError
from repro.config.sweeps import quote

RESULT = {f.name for f in dataclasses.fields(Config) if f.metadata.get("result", True)}
LONGEST = 128  # characters: W&B refuses more
HEAD = ("algo", "model", "data", "nodes")


def tags(config: Config) -> list[str]:
    """Returns what runs are filtered by: the network, the algorithm and P."""
    return [config.model.name, config.algo.name, f"P={config.nodes}"]


def name(config: Config) -> str:
    """Returns algorithm, network, data and P, and what the experiment sweeps or somebody has changed.

    For example "gTop-k, ResNet-20 on CIFAR-10, P=4, density=0.0005 seed=1". Two runs of an experiment that compute
    something else have two names: one that is too long ends with the hash of the run id in place of its rest.
    """
    own = flat(dataclasses.asdict(config))
    network, data = title("model", own["model"]), title("data", own["data"])
    head = f"{title('algo', own['algo'])}, {network} on {data}, P={config.nodes}"
    experiment = [] if config.experiment == "default" else [f"experiment={config.experiment}"]
    try:
        points = compose([*experiment, *(f"{key}={quote(own[key])}" for key in HEAD)])
    except ConfigError:  # a file of conf/ is gone since
        return config.run_id[-LONGEST:]
    usual = [flat(dataclasses.asdict(point)) for point in points]
    swept = differing(usual)
    if config.draws_by_seed:
        own.pop("algo.seed", None)
    rest = [
        f"{key}={quote(value)}"
        for key, value in own.items()
        if _matters(key, own, usual[0]) and (key in swept or value != usual[0].get(key))
    ]
    whole = f"{head}, {' '.join(rest)}" if rest else head
    if len(whole) <= LONGEST:
        return whole
    end = f"... {config.run_id.rpartition('-')[2]}"
    return whole[: LONGEST - len(end)] + end


def _matters(key: str, own: dict[str, Any], usual: dict[str, Any]) -> bool:
    """Returns whether the key is one of the result, not in the head, and no consequence of another choice of its group.

    That network=ethernet10g has another network.alpha_s is no news; that it is not that of ethernet10g is.
    """
    group, _, option = key.partition(".")
    if group not in RESULT or key in HEAD:
        return False
    if not option or own[group] == usual[group]:
        return key in usual
    return group in ("cluster", "network") and declared(group, own[group]).get(option) != own[key]
