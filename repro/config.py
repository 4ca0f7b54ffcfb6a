"""Overrides -> configurations: Hydra's compose API over conf/, with errors that a user can act on.

    compose(["model=resnet20", "algo=dense,gtopk", "nodes=4"]) -> [Config, Config]

Hydra is imported here alone and only when something is composed. Nothing below the command line sees a DictConfig.
"""

import dataclasses
import difflib
import functools
import itertools
import re
from pathlib import Path
from typing import Any

import yaml

from repro.schema import (  # noqa: F401  (the schema is this module's vocabulary)
    Algo,
    Cluster,
    Config,
    ConfigError,
    Data,
    Model,
    Network,
    RunError,
    Wandb,
    convert,
    from_dict,
)

GROUPS = ("model", "algo", "data", "network", "cluster", "experiment")
KINDS = {"model": Model, "algo": Algo, "data": Data, "network": Network, "cluster": Cluster}


def conf_folder() -> Path:
    """conf/ beside the package in a wheel's installation, one folder up in a checkout."""
    inside = Path(__file__).parent / "conf"
    return inside if inside.is_dir() else inside.parent.parent / "conf"


def group_options(group: str) -> list[str]:
    return sorted(path.stem for path in (conf_folder() / group).glob("*.yaml"))


def compose(overrides: list[str]) -> list[Config]:
    """One Config per point of the sweep, in order, without repeats.

    Commas sweep (`algo=dense,topk`), except inside brackets or quotes (`lr_drops=[81,122]`). An experiment's `sweep:`
    is a mapping of key to values, or a list of such mappings; a key given here replaces it there.
    Raises ConfigError.
    """
    from hydra import initialize_config_dir

    parsed = [_parse(text) for text in _network_files(overrides)]
    _check_groups(parsed)
    configs: dict[Path, Config] = {}
    with initialize_config_dir(config_dir=str(conf_folder().resolve()), version_base="1.3"):
        for point in _points(parsed):
            config = _compose_one(point)
            configs.setdefault(config.folder, config)
    return list(configs.values())


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
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_./][\w./-]*", text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return text


def _parse(text: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    name, equals, _ = text.partition("=")
    if name[:1] in "+~" or "@" in name or name.split(".")[0] == "hydra":
        raise ConfigError(f"{text}: only KEY=VALUE is understood, for example nodes=8. `repro run --show` lists the keys.")
    if not equals:
        raise ConfigError(f"{text}: expected KEY=VALUE.{_near(name, [*GROUPS, *_root_keys()], '{}=...')}")
    try:
        return OverridesParser.create().parse_override(text)
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
        result += [f"network.name={quote(str(values['name']))}", *(f"network.{k}={v!r}" for k, v in numbers.items())]
    return result


def _check_groups(parsed: list[Any]) -> None:
    for override in parsed:
        if override.key_or_group not in GROUPS:
            continue
        options = group_options(override.key_or_group)
        values = override.sweep_string_iterator() if override.is_sweep_override() else [override.get_value_string()]
        for value in values:
            if value not in options and not (override.key_or_group == "experiment" and value == "null"):
                near = _near(value, options, override.key_or_group + "={}")
                raise ConfigError(
                    f"{override.key_or_group}={value}: there is no such {override.key_or_group}.{near} "
                    f"Choose one of {', '.join(options)}."
                )


def _points(parsed: list[Any]) -> list[list[str]]:
    """Every combination of the command line's sweeps and the experiment's."""
    fixed = {o.key_or_group: [o.input_line] for o in parsed if not o.is_sweep_override()}
    for o in parsed:
        if o.is_sweep_override():
            fixed[o.key_or_group] = [f"{o.key_or_group}={value}" for value in o.sweep_string_iterator()]
    points = []
    for experiment in fixed.pop("experiment", [""]):
        chosen = [experiment] if experiment else []
        for part in _experiment_sweeps(experiment.partition("=")[2], fixed):
            axes = [[f"{k}={quote(v)}" for v in values] for k, values in part.items() if k not in fixed]
            points += [[*chosen, *point] for point in itertools.product(*axes, *fixed.values())]
    return points


def _experiment_sweeps(name: str, given: dict[str, list[str]]) -> list[dict[str, list]]:
    """The mappings under `sweep:`; of several, only those that hold a value given on the command line, if any does."""
    if name in ("", "null"):
        return [{}]
    sweep = (yaml.safe_load((conf_folder() / "experiment" / f"{name}.yaml").read_text()) or {}).get("sweep") or {}
    parts = sweep if isinstance(sweep, list) else [sweep]
    parts = [{k: v if isinstance(v, list) else [v] for k, v in part.items()} for part in parts]
    for k, texts in given.items():
        matching = [part for part in parts if {f"{k}={quote(v)}" for v in part.get(k, [])} & set(texts)]
        parts = matching or parts
    return parts


def _compose_one(overrides: list[str]) -> Config:
    """One configuration inside Hydra's context; every failure becomes a ConfigError."""
    from hydra import compose as hydra_compose
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        values = OmegaConf.to_container(hydra_compose("config", overrides), resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        groups = [text for text in overrides if text.partition("=")[0] in GROUPS]
        known = _dotted(OmegaConf.to_container(hydra_compose("config", groups)))
        for text in overrides:
            _check_key(text.partition("=")[0], known, text)
        raise ConfigError(f"{' '.join(overrides)}: {str(error).splitlines()[0]}") from None
    assert isinstance(values, dict)
    values.pop("sweep", None)
    experiment = next((text.partition("=")[2] for text in overrides if text.startswith("experiment=")), "null")
    values.setdefault("experiment", "default" if experiment == "null" else experiment)
    for group, kind in KINDS.items():
        values[group] = _with_options(group, values[group], {f.name for f in dataclasses.fields(kind)})
    known = [*GROUPS, *_root_keys()]
    for name in values:
        _check_key(str(name), known, f"{name} (in conf/experiment/{experiment}.yaml)")
    return from_dict(values)  # type: ignore[arg-type]


def _with_options(group: str, values: dict[str, Any], own: set[str]) -> dict[str, Any]:
    """Gathers what the group's YAML declares beyond the schema into `options`, typed by the defaults there."""
    from omegaconf import OmegaConf

    declared: Any = OmegaConf.to_container(OmegaConf.load(conf_folder() / group / f"{values['name']}.yaml")) \
        if values["name"] in group_options(group) else {}
    declared = declared.get("model", {}) if group == "model" else declared
    options = {name: value for name, value in values.items() if name not in own | {"choices"}}
    for name, value in options.items():
        _check_key(f"{group}.{name}", [f"{group}.{k}" for k in declared], f"{group}.{name} (for {group}={values['name']})")
        default = declared[name]
        if default is not None:
            kind = list if isinstance(default, list) else type(default)
            options[name] = value = convert(f"{group}.{name}", value, kind)
        choices = declared.get("choices", {}).get(name)
        if choices and value not in choices:
            raise ConfigError(f"{group}.{name}={value}: choose one of {', '.join(map(str, choices))}.")
    return {**{name: value for name, value in values.items() if name in own}, "options": options}


@functools.cache
def _root_keys() -> list[str]:
    return [f.name for f in dataclasses.fields(Config) if f.name not in ("wandb", *GROUPS)] + ["wandb.mode", "wandb.project"]


def _dotted(values: Any, prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in ("sweep", "choices"):
            names += _dotted(value, f"{prefix}{name}.")
        elif name not in ("sweep", "choices"):
            names.append(prefix + name)
    return names


def _check_key(name: str, known: list[str], said: str) -> None:
    if name not in known and name not in GROUPS and name != "wandb":
        raise ConfigError(f"{said}: there is no key {name}.{_near(name, known, '{}')} `repro run --show` lists the keys.")


def _near(name: str, known: list[str], form: str) -> str:
    matches = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {form.format(matches[0])}?" if matches else ""
