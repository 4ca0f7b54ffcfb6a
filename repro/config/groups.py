"""What can be chosen: the groups under conf/, the options of each, every key, and what was probably meant."""

import dataclasses
import difflib
import functools
from pathlib import Path
from typing import Any

import yaml

from repro.schema import Algo, Cluster, Config, ConfigError, Data, Model, Network, Tradeoff, Wandb

LIST_KEYS = "`repro run --show` lists the keys."
GROUPS = ("model", "algo", "data", "network", "cluster", "experiment")
ABOUT = ("choices", "family", "error_feedback", "source")  # what a group's YAML says to people, not to the run
FIXED = ("name", "sparse", "file", *ABOUT)  # what no override can change
NESTED = {"wandb": Wandb, "tradeoff": Tradeoff}
KINDS = {"model": Model, "algo": Algo, "data": Data, "network": Network, "cluster": Cluster}


def conf_folder() -> Path:
    """conf/ beside the package in a wheel's installation, one folder up in a checkout."""
    inside = Path(__file__).parent / "conf"
    return inside if inside.is_dir() else inside.parent.parent / "conf"


def group_options(group: str) -> list[str]:
    return sorted(path.stem for path in (conf_folder() / group).glob("*.yaml"))


def about(algo: str) -> dict[str, Any]:
    """What the algorithm's YAML says, to the run and to people."""
    values = yaml.safe_load((conf_folder() / "algo" / f"{algo}.yaml").read_text())
    found: dict[str, Any] = values.get("algo", values)
    return found


def cost(experiment: str) -> str | None:
    """What the experiment's file says of its cost; None if there is no such file."""
    path = conf_folder() / "experiment" / f"{experiment}.yaml"
    lines = path.read_text().splitlines() if path.is_file() else []
    return next((line.removeprefix("# Cost: ") for line in lines if line.startswith("# Cost: ")), None)


@functools.cache
def root_keys() -> list[str]:
    plain = [f.name for f in dataclasses.fields(Config) if f.name not in (*NESTED, *GROUPS)]
    return [*plain, *(f"{name}.{f.name}" for name, kind in NESTED.items() for f in dataclasses.fields(kind))]


def dotted(values: Any, prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, value in values.items():
        if name == "sweep" or (prefix and name in FIXED):
            continue
        names += dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]
    return names


def check_key(name: str, known: list[str], said: str) -> None:
    if name in known or name in GROUPS or name == "network.name":  # the name of a network=PATH
        return
    group = name.partition(".")[0]
    siblings = [k for k in known if k.startswith(group + ".")]
    hint = near(name, known, "{}")
    if group in KINDS and not hint:
        hint = f" It has {', '.join(siblings)}." if siblings else f" This {group} has no options."
    raise ConfigError(f"{said}: there is no key {name}.{hint} {LIST_KEYS}")


def near(name: str, known: list[str], form: str) -> str:
    matches = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {form.format(matches[0])}?" if matches else ""


def check_option(group: str, value: str, key: str = "") -> None:
    options, key = group_options(group), key or group
    if value not in options:
        hint = near(value, options, key + "={}")
        raise ConfigError(f"{key}={value}: there is no such {group}.{hint} Choose one of {', '.join(options)}.")
