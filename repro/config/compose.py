"""Composes overrides into configurations with Hydra's compose API over conf/, with errors that a user can act on.

    compose(["model=resnet20", "algo=dense,gtopk", "nodes=4"]) -> [Config, Config]

Hydra is imported only here, and only to compose. Nothing below the command line sees a DictConfig.
"""

import copy
import dataclasses
import functools
import itertools
import re
from pathlib import Path
from typing import Any

import yaml

from repro.config import groups
from repro.config.schema import Algo, Config, ConfigError, Network, from_dict
from repro.config.values import check_range, convert

MOST = 10_000  # values of one key in a sweep


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
    parsed = [_parse(text) for text in _network_files(overrides) if text != "experiment=null"]
    _check_groups(parsed)
    found: dict[Path, tuple[Config, list[str]]] = {}
    for point in _points(parsed):
        config = _compose_one(point)
        first, its_point = found.setdefault(config.folder, (config, point))
        if config != first:
            _check_one_folder(parsed, its_point, point)
    return [config for config, _ in found.values()]


def _check_one_folder(parsed: list[Any], first: list[str], second: list[str]) -> None:
    """Raises ConfigError where two points of one run folder differ in a key that a person sweeps, as `threads=1,2`.

    In keys of an experiment's own sweep they may: its mappings overlap where a person replaces what sets them apart.
    """
    for key in (override.key_or_group for override in parsed if len(_texts(override)) > 1):
        one, other = (next(text for text in point if text.partition("=")[0] == key) for point in (first, second))
        if one != other:
            raise ConfigError(
                f"{one} and {other}: both would be one run, as {key} is not in the name of its folder. "
                "Type them one at a time, each with its own results=FOLDER."
            )


def once(overrides: list[str]) -> list[str]:
    """Returns the keys of the overrides. Raises ConfigError if one is given twice."""
    keys = [text.partition("=")[0] for text in overrides]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        words = " ".join(text for key, text in zip(keys, overrides, strict=True) if key == twice)
        raise ConfigError(f"{words}: {twice} is given twice; commas sweep, as in {twice}=A,B.")
    return keys


def algorithm(name: str, options: dict[str, Any], seed: int = 0, density: float | None = None) -> Algo:
    """Composes `algo=NAME algo.OPTION=VALUE seed=SEED` without Hydra, which the caller's program may be using.

    `density` is only checked. Raises ConfigError.
    """
    from omegaconf import OmegaConf

    for given, value in {"seed": seed, "density": density}.items():
        field = next(f for f in dataclasses.fields(Config) if f.name == given)
        if value is not None:
            check_range(given, convert(given, value, field.type), field.metadata)
    groups.check_option("algo", name)
    values: Any = OmegaConf.create({"seed": seed, "algo": declared("algo", name)})
    values = OmegaConf.to_container(values, resolve=True)
    known = [f"algo.{key}" for key in values["algo"] if key not in groups.FIXED]
    for key, value in options.items():
        groups.check_key(f"algo.{key}", known, f"algo.{key}={value}")
    algo = Algo(**_with_options("algo", Algo, values["algo"] | options, "none"))
    if algo.idle_mask:
        raise ConfigError(algo.idle_mask)
    return algo


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
    except (OSError, yaml.YAMLError, AttributeError, TypeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is no configuration of a run: {type(error).__name__}: {reason}") from None


def quote(value: Any) -> str:
    """Writes a value so that Hydra's grammar reads it back: quote("a b, c") == "'a b, c'"."""
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


@functools.cache  # making one inspects every function of the grammar, which takes most of a parse
def _parser() -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create()


@functools.lru_cache(10_000)  # the points of a sweep have most of their values in common
def _parse(text: str) -> Any:
    from hydra.errors import HydraException

    name, equals, _ = text.partition("=")
    if name[:1] in "+~" or "@" in name or name.split(".")[0] == "hydra":
        raise ConfigError(f"{text}: only KEY=VALUE is understood, for example nodes=8. {groups.LIST_KEYS}")
    if name != "network.name":
        groups.check_fixed(name, text)
    if not equals:
        hint = groups.near(name, [*groups.GROUPS, *groups.root_keys()], "{}=...")
        raise ConfigError(f"{text}: expected KEY=VALUE.{hint}")
    try:
        return _parser().parse_override(text)
    except HydraException:
        pass
    value = text[len(name) + 1 :]
    if value.startswith("~/"):  # in quotes it would be a folder called ~
        raise ConfigError(f"{text}: the shell leaves ~ as it is behind =. Type {name}={value.replace('~/', '$HOME/')}.")
    words = value.split(",")
    if len(words) > 1 and not all(words):
        raise ConfigError(
            f"{text}: a comma stands between two values: {name}={','.join(filter(None, words)) or 'A,B'}."
        )
    raise ConfigError(f"{text!r}: the value cannot be read. Put it in quotes: {name}={quote(value)!r}.")


def _network_files(overrides: list[str]) -> list[str]:
    """Replaces `network=PATH.yaml` by the three or four values in that file."""
    result: list[str] = []
    for text in overrides:
        name, _, value = text.partition("=")
        path = value.strip("'\"")
        if name != "network" or not path.endswith((".yaml", ".yml")):
            result.append(text)
            continue
        if "," in path and not Path(path).is_file():
            raise ConfigError(f"{text}: only the names of networks sweep; give one file at a time.")
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
        if override.key_or_group in groups.GROUPS:
            for text in _texts(override):
                group, _, value = text.partition("=")
                if value == "all":
                    others = ",".join(groups.group_options(group))
                    raise ConfigError(f"{text} stands alone; to leave some out, name the others: {others}.")
                groups.check_option(group, value)


def _points(parsed: list[Any]) -> list[list[str]]:
    """Returns every combination of the command line's and the experiment's sweeps."""
    given = {override.key_or_group: _texts(override) for override in parsed}
    points = []
    for experiment in given.pop("experiment", [""]):
        chosen = [experiment] if experiment else []
        for part, asked in _experiment_sweeps(experiment.partition("=")[2], given):
            axes = [[f"{k}={quote(v)}" for v in values] for k, values in part.items() if k not in asked]
            points += [[*chosen, *point] for point in itertools.product(*axes, *asked.values())]
    return points


def _texts(override: Any) -> list[str]:
    """Returns the override once for each value it sweeps; `all` sweeps a group. Raises ConfigError if there is none."""
    from hydra.errors import HydraException

    if override.key_or_group in groups.GROUPS and override.input_line.endswith("=all"):
        return [f"{override.key_or_group}={name}" for name in groups.group_options(override.key_or_group)]
    key = override.key_or_group
    if not override.is_sweep_override():
        return [override.input_line]
    try:
        values = itertools.islice(override.sweep_string_iterator(), MOST + 1)  # range(1,inf) never ends
        texts = [f"{key}={value}" for value in values]
    # glob() and interval(), which only plugins of Hydra can sweep; range(1,4,0); range(nan,3)
    except (HydraException, ValueError, ArithmeticError):
        texts = []
    if len(texts) > MOST:
        raise ConfigError(f"{override.input_line}: these are more than {MOST:,} values; type fewer.")
    if not texts:
        raise ConfigError(f"{override.input_line}: there are no values in it; type {key}=A,B, or range(1,4) for 1,2,3.")
    return texts


def _experiment_sweeps(name: str, given: dict[str, list[str]]) -> list[tuple[dict[str, list], dict[str, list[str]]]]:
    """Returns the mappings under `sweep:`, each with the overrides that replace what it has.

    Of several mappings those count that hold a value given by the user, if any does, and such a value goes only to
    those that hold it: another network of the same experiment has a batch of its own.
    """
    if not name:
        return [({}, given)]
    text = (groups.conf_folder() / "experiment" / f"{name}.yaml").read_text()
    sweep = (yaml.safe_load(text) or {}).get("sweep") or {}
    parts = sweep if isinstance(sweep, list) else [sweep]
    # an empty list is a value (density_warmup): nobody sweeps over nothing
    chosen = [({k: v if v and isinstance(v, list) else [v] for k, v in part.items()}, given) for part in parts]
    for k, texts in given.items():
        held = [{f"{k}={quote(v)}" for v in part.get(k, [])} & set(texts) for part, _ in chosen]
        if in_some := set().union(*held):
            chosen = [
                (part, asked | {k: [text for text in texts if text in mine or text not in in_some]})
                for (part, asked), mine in zip(chosen, held, strict=True)
                if mine
            ]
    return chosen


@functools.cache  # the points of a sweep share it, as Hydra takes a quarter of a second per call
def _base(folder: Path, chosen: tuple[str, ...]) -> Any:
    """Returns the values that the choices of groups give, before any other key is set."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(config_dir=str(folder.resolve()), version_base="1.3"):
        return OmegaConf.to_container(hydra_compose("config", list(chosen)))


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
                groups.check_key(name, known, text)
                *path, last = name.split(".")
                value = _parse(text).value()
                if "${" in str(value):
                    raise ConfigError(f"{text}: ${{...}} is understood in conf/ only; type the value itself.")
                functools.reduce(dict.__getitem__, path, values)[last] = value
        values = OmegaConf.to_container(OmegaConf.create(values), resolve=True)
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(f"{' '.join(overrides)}: {str(error).splitlines()[0]}") from None
    if values["network"] != network and values["network"]["name"] == network["name"]:
        values["network"]["name"] += "_changed"  # its times are not those of the network that has the name
    values.pop("sweep", None)
    names = [text.partition("=")[2] for text in chosen if text.startswith("experiment=")]
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
    for name in fields.keys() & values.keys():  # first, as bounds of options may name them
        check_range(f"{group}.{name}", values[name], fields[name])
    options = {name: value for name, value in values.items() if name not in {*fields, *groups.ABOUT}}
    for name, value in options.items():
        known = [f"{group}.{k}" for k in about if k not in groups.FIXED]
        groups.check_key(f"{group}.{name}", known, f"{group}.{name}={value} (experiment {experiment})")
        kind, allowed = groups.declaration(about, name)
        checked = convert(f"{group}.{name}", value, kind)
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
