"""Overrides -> configurations: Hydra's compose API over conf/, with errors that a user can act on.

    compose(["model=resnet20", "algo=dense,gtopk", "nodes=4"]) -> [Config, Config]

Hydra is imported here alone, and only to compose. Nothing below the command line sees a DictConfig.
"""

import copy
import dataclasses
import functools
import itertools
import re
from pathlib import Path
from typing import Any

import yaml

from repro import choices
from repro.schema import (  # noqa: F401  (the schema is this module's vocabulary)
    Algo,
    Cluster,
    Config,
    ConfigError,
    Data,
    Model,
    Network,
    RunError,
    Tradeoff,
    Wandb,
    check_range,
    convert,
    from_dict,
)


def compose(overrides: list[str]) -> list[Config]:
    """One Config per point of the sweep, in order, without repeats.

    Commas sweep (`algo=dense,topk`), except inside brackets or quotes (`lr_drops=[81,122]`). An experiment's
    `sweep:` is a mapping of key to values, or a list of such mappings; a key given here replaces it there.
    Raises ConfigError.
    """
    parsed = [_parse(text) for text in _network_files(overrides) if text != "experiment=null"]
    _check_groups(parsed)
    configs: dict[Path, Config] = {}
    for point in _points(parsed):
        config = _compose_one(point)
        configs.setdefault(config.folder, config)
    return list(configs.values())


def algorithm(name: str, options: dict[str, Any], seed: int = 0, density: float | None = None) -> Algo:
    """What `algo=NAME algo.OPTION=VALUE seed=SEED` composes, without Hydra, which the caller's program may be using.

    `density` is looked at only. Raises ConfigError.
    """
    from omegaconf import OmegaConf

    for given, value in {"seed": seed, "density": density}.items():
        declared = next(f for f in dataclasses.fields(Config) if f.name == given)
        if value is not None:
            check_range(given, convert(given, value, declared.type), declared.metadata)
    choices.check_option("algo", name)
    values: Any = OmegaConf.create({"seed": seed, "algo": _declared("algo", name)})
    values = OmegaConf.to_container(values, resolve=True)
    known = [f"algo.{key}" for key in values["algo"] if key not in choices.FIXED]
    for key, value in options.items():
        choices.check_key(f"algo.{key}", known, f"algo.{key}={value}")
    return Algo(**_with_options("algo", Algo, values["algo"] | options, "none"))


def named_network(name: str) -> Network:
    """One of conf/network. Raises ConfigError."""
    choices.check_option("network", name)
    return Network(**_with_options("network", Network, _declared("network", name), "none"))


def to_yaml(config: Config) -> str:
    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, default_flow_style=None)


def from_yaml(path: Path) -> Config:
    """Reads a run folder's config.yaml. Raises ConfigError."""
    try:
        return from_dict(yaml.safe_load(path.read_text()))
    except (OSError, yaml.YAMLError, AttributeError, TypeError) as error:
        raise ConfigError(f"{path} is no configuration of a run: {error}") from None


def quote(value: Any) -> str:
    """A value as Hydra's grammar reads it back: quote("a b, c") == "'a b, c'"."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(quote(item) for item in value) + "]"
    text = str(value)
    plain = re.fullmatch(r"(?!(null|true|false|nan|inf)$)[a-z_./][\w./-]*", text, re.ASCII | re.IGNORECASE)
    if not isinstance(value, str) or plain:
        return text
    # backslashes count only where they precede a quote or end the text
    return "'" + re.sub(r"(\\*)('|\Z)", lambda m: m[1] * 2 + m[2].replace("'", "\\'"), text) + "'"


@functools.cache  # making one looks at the signature of each function of the grammar, which takes most of a parse
def _parser() -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()


@functools.lru_cache(10_000)  # the points of a sweep have most of their values in common
def _parse(text: str) -> Any:
    from hydra.errors import HydraException

    name, equals, _ = text.partition("=")
    if name[:1] in "+~" or "@" in name or name.split(".")[0] == "hydra":
        raise ConfigError(f"{text}: only KEY=VALUE is understood, for example nodes=8. {choices.LIST_KEYS}")
    group, *field = name.split(".")
    if group in choices.KINDS and field and field[0] in choices.FIXED and name != "network.name":
        options = ", ".join(choices.group_options(group))
        raise ConfigError(f"{text}: this is fixed by {group}=NAME; choose one of {options}.")
    if not equals:
        hint = choices.near(name, [*choices.GROUPS, *choices.root_keys()], "{}=...")
        raise ConfigError(f"{text}: expected KEY=VALUE.{hint}")
    try:
        return _parser().parse_override(text)
    except HydraException:
        pass
    raise ConfigError(f"{text!r}: the value cannot be read. Put it in quotes: {name}={quote(text[len(name) + 1 :])!r}.")


def _network_files(overrides: list[str]) -> list[str]:
    """`network=PATH.yaml` becomes the three or four values in that file."""
    result: list[str] = []
    for text in overrides:
        name, _, value = text.partition("=")
        path = value.strip("'\"")
        if name != "network" or not path.endswith((".yaml", ".yml")):
            result.append(text)
            continue
        try:
            values = yaml.safe_load(Path(path).read_text())
            values = {"name": Path(path).stem, "bits_per_s": 0.0, **values}
            # YAML 1.1 reads 9e-9 as a text
            numbers = {k: float(values[k]) for k in ("alpha_s", "beta_s_per_byte", "bits_per_s")}
        except (OSError, yaml.YAMLError, TypeError, KeyError, ValueError) as error:
            wanted = "a YAML file with name, alpha_s and beta_s_per_byte"
            raise ConfigError(f"network={path}: expected {wanted}, got {type(error).__name__}: {error}.") from None
        result += [
            f"network.name={quote(str(values['name']))}",
            *(f"network.{k}={v!r}" for k, v in numbers.items()),
        ]
    return result


def _check_groups(parsed: list[Any]) -> None:
    for override in parsed:
        if override.key_or_group in choices.GROUPS:
            for text in _texts(override):
                choices.check_option(override.key_or_group, text.partition("=")[2])


def _points(parsed: list[Any]) -> list[list[str]]:
    """Every combination of the command line's sweeps and the experiment's."""
    given = {override.key_or_group: _texts(override) for override in parsed}
    points = []
    for experiment in given.pop("experiment", [""]):
        chosen = [experiment] if experiment else []
        for part in _experiment_sweeps(experiment.partition("=")[2], given):
            axes = [[f"{k}={quote(v)}" for v in values] for k, values in part.items() if k not in given]
            points += [[*chosen, *point] for point in itertools.product(*axes, *given.values())]
    return points


def _texts(override: Any) -> list[str]:
    """The override once for each value it sweeps; `all` sweeps a group."""
    if override.key_or_group in choices.GROUPS and override.input_line.endswith("=all"):
        return [f"{override.key_or_group}={name}" for name in choices.group_options(override.key_or_group)]
    if not override.is_sweep_override():
        return [override.input_line]
    return [f"{override.key_or_group}={value}" for value in override.sweep_string_iterator()]


def _experiment_sweeps(name: str, given: dict[str, list[str]]) -> list[dict[str, list]]:
    """The mappings under `sweep:`; of several, those that hold a value given by the user, if any does."""
    if not name:
        return [{}]
    text = (choices.conf_folder() / "experiment" / f"{name}.yaml").read_text()
    sweep = (yaml.safe_load(text) or {}).get("sweep") or {}
    parts = sweep if isinstance(sweep, list) else [sweep]
    # an empty list is a value (density_warmup): nobody sweeps over nothing
    parts = [{k: v if v and isinstance(v, list) else [v] for k, v in part.items()} for part in parts]
    for k, texts in given.items():
        matching = [part for part in parts if {f"{k}={quote(v)}" for v in part.get(k, [])} & set(texts)]
        parts = matching or parts
    return parts


@functools.cache  # the points of a sweep share it: Hydra takes a quarter of a second for each
def _base(folder: Path, groups: tuple[str, ...]) -> Any:
    """What the choices of groups give, before any other key."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(config_dir=str(folder.resolve()), version_base="1.3"):
        return OmegaConf.to_container(hydra_compose("config", list(groups)))


def _compose_one(overrides: list[str]) -> Config:
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    groups = tuple(text for text in overrides if text.partition("=")[0] in choices.GROUPS)
    try:
        values: Any = copy.deepcopy(_base(choices.conf_folder(), groups))
        known = choices.dotted(values)
        for text in overrides:
            if text not in groups:
                name = text.partition("=")[0]
                choices.check_key(name, known, text)
                *path, last = name.split(".")
                functools.reduce(dict.__getitem__, path, values)[last] = _parse(text).value()
        values = OmegaConf.to_container(OmegaConf.create(values), resolve=True)
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(f"{' '.join(overrides)}: {str(error).splitlines()[0]}") from None
    values.pop("sweep", None)
    names = [text.partition("=")[2] for text in groups if text.startswith("experiment=")]
    values["experiment"] = experiment = names[0] if names else "default"
    for group, kind in choices.KINDS.items():
        values[group] = _with_options(group, kind, values[group], experiment)
    for name in values:
        choices.check_key(name, [*choices.root_keys(), *choices.NESTED], f"{name} (experiment {experiment})")
    config = from_dict(values)
    for name in config.also_on:
        choices.check_option("network", name, "also_on")
    return config


def _with_options(group: str, kind: Any, values: Any, experiment: str) -> dict[str, Any]:
    """Gathers what the group's YAML has beyond the schema into `options`, typed by the defaults there."""
    own = {f.name for f in dataclasses.fields(kind)}
    if "name" not in values:
        raise ConfigError(f"conf/{group}: an option without a name; each file there begins with `name: ...`.")
    declared = _declared(group, values["name"])
    options = {name: value for name, value in values.items() if name not in own | {*choices.ABOUT}}
    for name, value in options.items():
        known = [f"{group}.{k}" for k in declared if k not in choices.FIXED]
        choices.check_key(f"{group}.{name}", known, f"{group}.{name}={value} (experiment {experiment})")
        if declared[name] is not None and "${" not in str(declared[name]):
            options[name] = value = convert(f"{group}.{name}", value, type(declared[name]))
        allowed = declared.get("choices", {}).get(name)
        if allowed and value not in allowed:
            raise ConfigError(f"{group}.{name}={value}: choose one of {', '.join(map(str, allowed))}.")
    return {**{name: value for name, value in values.items() if name in own}, "options": options}


def _declared(group: str, name: str) -> dict[str, Any]:
    """What an option's YAML holds, {} for a network read from elsewhere. Shared: not to be changed."""
    path = choices.conf_folder() / group / f"{name}.yaml"
    if not path.exists():
        return {}
    values = _read(path, path.stat().st_mtime_ns)
    return values.get(group, values)  # a file with `@package _global_` names its group


@functools.cache  # by its time too: 2 ms each, and a sweep asks for the same few files thousands of times
def _read(path: Path, changed_ns: int) -> dict[str, Any]:
    from omegaconf import OmegaConf

    values: Any = OmegaConf.to_container(OmegaConf.load(path))  # not yaml.safe_load, to which 1e-3 is a text
    return values
