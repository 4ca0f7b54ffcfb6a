"""What can be chosen: the groups under conf/, the options of each, every key, and what was probably meant."""

import dataclasses
import difflib
import functools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import GenericAlias
from typing import Any, Literal, get_args, get_origin

import yaml

from repro.config.parts import Algo, Cluster, Data, Model, Network, Tradeoff, Wandb
from repro.config.schema import Config, ConfigError
from repro.config.values import hints_of, range_text

LIST_KEYS = "`repro run --show` lists the keys."
GROUPS = ("model", "algo", "data", "network", "cluster", "experiment")
ABOUT = (  # what a group's YAML says to people, not to the run
    "title", "choices", "ranges", "family", "error_feedback", "union", "all_send", "cost", "update", "use",
    "source", "unlike",
)  # fmt: skip
TITLE = re.compile(r"^ *title: (.+)$", re.MULTILINE)  # a YAML parser would take 100 ms for all files
FIXED = ("name", "sparse", "file", "reads", *ABOUT)  # what no override can change
FAMILIES = ("full precision", "quantised", "low rank", "sparse", "delayed", "decentralised")  # of algorithms
NESTED = {"wandb": Wandb, "tradeoff": Tradeoff}
KINDS = {"model": Model, "algo": Algo, "data": Data, "network": Network, "cluster": Cluster}


@functools.cache
def conf_folder() -> Path:
    """Returns conf/ beside the package in a wheel's installation, one folder up in a checkout."""
    inside = Path(__file__).parents[1] / "conf"
    return inside if inside.is_dir() else inside.parent.parent / "conf"


def group_options(group: str) -> list[str]:
    return sorted(path.stem for path in (conf_folder() / group).glob("*.yaml"))


def about(algo: str) -> dict[str, Any]:
    """Returns what the algorithm's YAML says, to the run and to people. It is shared: do not change it."""
    values = _of_algo(algo)
    found: dict[str, Any] = values.get("algo", values)
    return found


def about_known(algo: str) -> dict[str, Any]:
    """Returns what `about` does, and nothing for an algorithm of others' results that is not known here."""
    return about(algo) if is_known(algo) else {}


def is_known(algo: str) -> bool:
    """Returns whether an algorithm of anybody's results, whatever its name is, has a file here."""
    try:
        return "/" not in algo and _file(conf_folder(), algo).is_file()
    except (OSError, ValueError):  # too long a name of a file, or none
        return False


def _of_algo(algo: str) -> dict[str, Any]:
    values: dict[str, Any] = read(_file(conf_folder(), algo))
    return values


@functools.cache  # tables ask for each of their runs, some hundred thousand times
def _file(conf: Path, algo: str) -> Path:
    return conf / "algo" / f"{algo}.yaml"


def read(path: Path) -> Any:
    """Returns what a YAML holds. It is shared: do not change it."""
    return _read(path, path.stat().st_mtime_ns)


@functools.cache  # the time of change is in the key
def _read(path: Path, changed_ns: int) -> Any:
    return yaml.safe_load(path.read_text())


def title(group: str, text: str) -> str:
    """Puts the name for people in place of the first word of `text`, which is an option of `group` if it has one.

    title("algo", "gtopk_exact") == "gTop-k exact"; title("data", "cifar10 (JPEG folder)") == "CIFAR-10 (JPEG folder)".
    It is the `title` of the option's YAML; an option without one is called by its own name, with spaces.
    """
    titles = _titles(conf_folder() / group)
    return re.sub(r"^\w+", lambda name: titles.get(name[0], name[0].replace("_", " ")), text)


@functools.cache
def _titles(folder: Path) -> dict[str, str]:
    lines = {path.stem: TITLE.search(path.read_text()) for path in folder.glob("*.yaml")}
    return {name: str(yaml.safe_load(line[1])) for name, line in lines.items() if line}


@functools.cache
def default(model: str, key: str) -> Any:
    """Returns the value of a key that a run of `model` has by default: its YAML's, else that of conf/config.yaml.

    None where neither has one, so that it must be typed.
    """
    files = (conf_folder() / "model" / f"{model}.yaml", conf_folder() / "config.yaml")
    values = (read(path) for path in files if path.is_file())
    return next((own[key] for own in values if key in own), None)


def replaces_momentum(algo: str) -> bool:
    """Returns whether the algorithm takes the place of the optimizer's momentum, which its YAML then sets to 0.

    Of one that has `algo.gain` the 0 is a choice: what takes momentum's place there is a gain above 1.
    """
    return beside(algo).get("momentum") == 0 and "gain" not in about(algo)


def gain(algo: dict[str, Any], model: str) -> dict[str, float]:
    """Returns what changes of an algorithm's options for `model`: there is no gain in place of momentum it lacks.

    A gain that is not that of the algorithm's own file was chosen, and stays.
    """
    own = about_known(str(algo.get("name"))).get("gain", 1)
    return {"gain": 1.0} if own != 1 and algo.get("gain") == own and default(model, "momentum") == 0 else {}


def algo_default(algo: str, model: str, key: str) -> Any:
    """Returns the value of a key outside of `algo.` that a run of both has by default; `algo` may be unknown here."""
    own = beside(algo) if is_known(algo) else {}
    return own[key] if key in own else default(model, key)


def beside(algo: str) -> dict[str, Any]:
    """Returns what the algorithm's YAML sets besides its own options."""
    values = _of_algo(algo)
    return values if "algo" in values else {}


def declaration(declared: dict[str, Any], option: str) -> tuple[Any, Mapping[str, Any]]:
    """Returns the type and range of an option, from what its YAML has; one that is `${KEY}` has those of KEY."""
    default = declared[option]
    if isinstance(default, str) and default.startswith("${"):
        named = next(f for f in dataclasses.fields(Config) if f.name == default.strip("${}"))
        return hints_of(Config)[named.name], named.metadata
    kind: Any = type(default)
    if isinstance(default, list) and default:
        kind = GenericAlias(list, type(default[0]))
    return Any if default is None else kind, declared.get("ranges", {}).get(option, {})


def allowed(key: str, declared: dict[str, Any]) -> str:
    """Returns the range or the choices of a key in words, "" where neither is said. `declared`: in its group's YAML."""
    group, _, own = key.rpartition(".")
    kind: Any = {**KINDS, **NESTED}.get(group, Config)
    hint = hints_of(kind).get(own)
    if hint is not None:
        bounds: Mapping[str, Any] = next(f.metadata for f in dataclasses.fields(kind) if f.name == own)
        choices = choices_of(hint)
    elif own in declared:
        bounds, choices = (
            declaration(declared, own)[1],
            declared.get("choices", {}).get(own, choices_of(type(declared[own]))),
        )
    else:
        return ""
    return range_text(bounds) or " | ".join(map(str, choices))


def choices_of(kind: Any) -> Sequence[Any]:
    """Returns the values of a type that has few; one that may also be null has those of its other part."""
    if kind is bool:
        return ("true", "false")
    return next((get_args(one) for one in (kind, *get_args(kind)) if get_origin(one) is Literal), ())


def cost(experiment: str) -> str | None:
    """Returns what the experiment's file says of its cost; None if there is no such file."""
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


# What people type who know another suite, and what it is here.
GUESSED = {
    ("batch_size", "batch", "bs", "per_device_batch_size"): "batch_per_node=32 is the number of images on each node.",
    ("optimizer", "optim", "opt"): "SGD with momentum is the one optimizer: set momentum, weight_decay, lr.",
    ("learning_rate", "lr_rate", "base_lr"): "It is called lr here.",
    ("algorithm", "method", "compressor"): "It is called algo here: algo=gtopk.",
    ("world_size", "ranks", "workers", "gpus", "num_nodes", "n_nodes", "np"): "It is called nodes here: nodes=4.",
    ("dataset",): "It is called data here: data=cifar10.",
    ("arch", "net", "architecture"): "It is called model here: model=resnet20.",
    ("ratio", "sparsity", "compression_ratio", "rho", "k"): "The share of entries that travel is density=0.001.",
    ("num_epochs", "max_epochs", "n_epochs"): "It is called epochs here.",
    ("max_steps", "num_steps", "iterations"): "It is called steps here.",
    ("partition", "account", "time", "gres", "qos", "constraint", "mem"):
        "Options of sbatch stand after two dashes: repro launch model=resnet20 -- --partition=gpu.",
}  # fmt: skip
MEANT = {name: meant for names, meant in GUESSED.items() for name in names}


def check_fixed(name: str, said: str) -> None:
    """Raises ConfigError for what an option of a group brings with it, which no override changes."""
    group, *field = name.split(".")
    if group in KINDS and field and field[0] in FIXED:
        raise ConfigError(f"{said}: this is fixed by {group}=NAME; choose one of {', '.join(group_options(group))}.")


def check_key(name: str, known: list[str], said: str) -> None:
    if name in known or name in GROUPS or name == "network.name":  # the name of a network=PATH
        return
    group = name.partition(".")[0]
    siblings = [k for k in known if k.startswith(group + ".")]
    of_option = group in KINDS and "." in name  # to which no key of another is near
    hint = f" {MEANT[name]}" if name in MEANT else near(name, siblings if of_option else [*GROUPS, *known], "{}")
    if group in KINDS and not hint:
        hint = f" It has {', '.join(siblings)}." if siblings else f" This {group} has no options."
    raise ConfigError(f"{said}: there is no key {name}.{hint} {LIST_KEYS}")


def near(name: str, known: list[str], form: str) -> str:
    shared = name.rpartition(".")[0] + "." if "." in name else ""
    own = [one.removeprefix(shared) for one in known if one.startswith(shared)]  # what they share makes none near
    if not own:
        shared, own = "", known
    matches = difflib.get_close_matches(name.removeprefix(shared), own, n=1)
    return f" Did you mean {form.format(shared + matches[0])}?" if matches else ""


def check_option(group: str, value: str, key: str = "") -> None:
    """Raises ConfigError where the group lacks the option, or where its file does not say that it is this one."""
    options, key = group_options(group), key or group
    if value not in options:
        hint = near(value, options, key + "={}")
        raise ConfigError(f"{key}={value}: there is no such {group}.{hint} Choose one of {', '.join(options)}.")
    if group in KINDS:
        path = conf_folder() / group / f"{value}.yaml"
        with suppress(yaml.YAMLError):  # Hydra says where, as it reads it next
            _check_file(group, value, _read(path, path.stat().st_mtime_ns))


def _check_file(group: str, value: str, values: Any) -> None:
    own = values.get(group, values) if isinstance(values, dict) else {}
    file = f"conf/{group}/{value}.yaml"
    if own.get("name", value) != value:
        raise ConfigError(f"{file}: its name is {own.get('name')}, and runs would have it; write `name: {value}`.")
    family = own.get("family")
    if family is not None and family not in FAMILIES:
        raise ConfigError(f"{file}: there is no family {family}; choose one of {', '.join(FAMILIES)}.")
