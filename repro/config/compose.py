"""Composes overrides into configurations with Hydra's compose API over conf/, with errors that a user can act on.

    compose(["model=resnet20", "algo=dense,gtopk", "nodes=4"]) -> [Config, Config]

Hydra is imported here, to compose, and in sweeps, to parse. Nothing below the command line sees a DictConfig.
"""

import copy
import dataclasses
import functools
from pathlib import Path
from typing import Any

import yaml

from repro.config import groups
from repro.config.parts import Algo, Network
from repro.config.schema import Config, ConfigError, from_dict
from repro.config.sweeps import check_groups, check_one_folder, check_rate, network_files, once, parse, points
from repro.config.values import check_range, convert, required


def typed(overrides: list[str], defaults: dict[str, str] | None = None) -> list[Config]:
    """Composes what a person typed, where no key may come twice; `defaults` fill in keys that may be left out."""
    keys = once(overrides)
    return compose([*(f"{key}={value}" for key, value in (defaults or {}).items() if key not in keys), *overrides])


def compose(overrides: list[str]) -> list[Config]:
    """Returns one Config per point of the sweep, in order, without repeats. If a key comes twice, the last counts.

    Commas sweep (`algo=dense,topk`), except inside brackets or quotes (`lr_drops=[81,122]`). An experiment's
    `sweep:` is a mapping of key to values, or a list of such mappings; a key given here replaces it there.
    Raises ConfigError.
    """
    parsed = [parse(text) for text in network_files(overrides) if text != "experiment=null"]
    check_groups(parsed)
    found: dict[Path, tuple[Config, list[str]]] = {}
    for point in points(parsed):
        config = _compose_one(point)
        first, its_point = found.setdefault(config.folder, (config, point))
        if config != first:
            check_one_folder(parsed, its_point, point)
    return [config for config, _ in found.values()]


def algorithm(name: str, options: dict[str, Any], seed: int = 0, density: float | None = None) -> Algo:
    """Composes `algo=NAME algo.OPTION=VALUE seed=SEED` without Hydra, which the caller's program may be using.

    `density` is only checked. Raises ConfigError.
    """
    from omegaconf import OmegaConf

    if not isinstance(name, str):
        raise ConfigError(
            f'an algorithm is named by a text, as "gtopk", not by {name!r}: one of your own is two files in a clone '
            "(docs/adding.md), installed with pip install -e PATH_OF_THE_CLONE, and has a name by then"
        )
    for given, value in {"seed": seed, "density": density}.items():
        if value is not None:
            check_value(given, value)
    groups.check_option("algo", name)
    values: Any = OmegaConf.create({"seed": seed, "algo": declared("algo", name)})
    values = OmegaConf.to_container(values, resolve=True)
    known = [f"algo.{key}" for key in values["algo"] if key not in groups.FIXED]
    for key, value in options.items():
        groups.check_key(f"algo.{key}", known, f"algo.{key}={value}")
    algo = Algo(**_with_options("algo", Algo, values["algo"] | options, "none"))
    if algo.conflict:
        raise ConfigError(algo.conflict)
    return algo


def check_value(key: str, value: object) -> None:
    """Raises ConfigError unless a key of a run may have this value."""
    field = next(f for f in dataclasses.fields(Config) if f.name == key)
    check_range(key, convert(key, value, field.type, field.metadata), field.metadata)


def named_network(name: str) -> Network:
    """Returns the network of this name in conf/network. Raises ConfigError."""
    groups.check_option("network", name)
    return Network(**_with_options("network", Network, declared("network", name), "none"))


def to_yaml(config: Config) -> str:
    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, default_flow_style=None)


def from_yaml(path: Path) -> Config:
    """Reads a run folder's config.yaml. Raises ConfigError."""
    try:
        return from_dict(yaml.safe_load(path.read_text()))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (OSError, yaml.YAMLError, AttributeError, TypeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is no configuration of a run: {type(error).__name__}: {reason}") from None


@functools.cache  # the points of a sweep share it, as Hydra takes a quarter of a second per call
def _base(folder: Path, chosen: tuple[str, ...]) -> Any:
    """Returns the values that the choices of groups give, before any other key is set."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(config_dir=str(folder.resolve()), version_base="1.3"):
        values: Any = OmegaConf.to_container(hydra_compose("config", list(chosen)))
    for group in groups.KINDS:
        if not isinstance(values[group], dict):
            raise ConfigError(f"conf/{group}: each file there holds lines of KEY: VALUE, beginning with `name: ...`.")
    return values


def _compose_one(overrides: list[str]) -> Config:
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    chosen = tuple(text for text in overrides if text.partition("=")[0] in groups.GROUPS)
    try:
        values: Any = copy.deepcopy(_base(groups.conf_folder(), chosen))
        known = groups.dotted(values)
        network = dict(values["network"])
        for text in overrides:
            if text not in chosen:
                name = text.partition("=")[0]
                group = name.partition(".")[0]
                chooses = f" ({group}={values[group].get('name')})" if "." in name and group in groups.KINDS else ""
                groups.check_key(name, known, text + chooses)
                *path, last = name.split(".")
                value = parse(text).value()
                if "${" in str(value):
                    raise ConfigError(f"{text}: ${{...}} is understood in conf/ only; type the value itself.")
                functools.reduce(dict.__getitem__, path, values)[last] = value
        if "algo.gain" not in (text.partition("=")[0] for text in overrides):
            values["algo"] |= groups.gain(values["algo"], values["model"]["name"])
        values.pop("sweep", None)
        if "${" in str(values):  # few have one, and OmegaConf takes ten times as long as all else here
            values = OmegaConf.to_container(OmegaConf.create(values), resolve=True)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{mark.name}, line {mark.line + 1}" if mark else " ".join(overrides)
        raise ConfigError(f"{where}: {error.problem}") from None
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(f"{' '.join(overrides)}: {str(error).splitlines()[0]}") from None
    if values["network"] != network and values["network"]["name"] == network["name"]:
        values["network"]["name"] += "_changed"  # its times are not those of the network that has the name
    names = [text.partition("=")[2] for text in chosen if text.startswith("experiment=")]
    if names:
        check_rate(names[0], values["algo"]["name"], overrides)
    if names and values.get("experiment"):  # its keys are there and not at the root, where they would count
        raise ConfigError(f"conf/experiment/{names[0]}.yaml: its first line must be `# @package _global_`.")
    values["experiment"] = experiment = names[0] if names else "default"
    for group, kind in groups.KINDS.items():
        values[group] = _with_options(group, kind, values[group], experiment)
    for name in values:
        groups.check_key(name, [*groups.root_keys(), *groups.NESTED], f"{name} (experiment {experiment})")
    config = from_dict(values)
    for name in config.also_on:
        groups.check_option("network", name, "also_on")
    return config


def _with_options(group: str, kind: Any, values: Any, experiment: str) -> dict[str, Any]:
    """Gathers the keys of the group's YAML that the schema lacks into `options`, typed by the defaults there."""
    fields = {f.name: f.metadata for f in dataclasses.fields(kind)}
    if "name" not in values:
        raise ConfigError(f"conf/{group}: an option without a name; each file there begins with `name: ...`.")
    about = declared(group, values["name"])
    if lacks := [name for name in required(kind) if name not in values]:
        raise ConfigError(f"conf/{group}/{values['name']}.yaml lacks {', '.join(lacks)}; docs/adding.md says more.")
    for name in fields.keys() & values.keys():  # first, as bounds of options may name them
        check_range(f"{group}.{name}", values[name], fields[name])
    options = {name: value for name, value in values.items() if name not in {*fields, *groups.ABOUT}}
    for name, value in options.items():
        known = [f"{group}.{k}" for k in about if k not in groups.FIXED]
        groups.check_key(f"{group}.{name}", known, f"{group}.{name}={value} (experiment {experiment})")
        kind, allowed = groups.declaration(about, name)
        checked = convert(f"{group}.{name}", value, kind, allowed)
        check_range(f"{group}.{name}", checked, allowed, values)
        if not isinstance(value, list):  # a list stays as typed, [1,1,1] as such: run ids were made of it
            options[name] = value = checked
        choices = about.get("choices", {}).get(name)
        if choices and value not in choices:
            raise ConfigError(f"{group}.{name}={value}: choose one of {', '.join(map(str, choices))}.")
    return {**{name: value for name, value in values.items() if name in fields}, "options": options}


def declared(group: str, name: str) -> dict[str, Any]:
    """Returns what an option's YAML holds, {} for a network from another file. It is shared: do not change it."""
    path = groups.conf_folder() / group / f"{name}.yaml"
    if not path.exists():
        return {}
    values = _read(path, path.stat().st_mtime_ns)
    return values.get(group, values)  # a file with `@package _global_` names its group


@functools.cache  # the time of change is in the key; a read takes 2 ms, and a sweep repeats it thousands of times
def _read(path: Path, changed_ns: int) -> dict[str, Any]:
    from omegaconf import OmegaConf

    values: Any = OmegaConf.to_container(OmegaConf.load(path))  # not yaml.safe_load, to which 1e-3 is a text
    return values
