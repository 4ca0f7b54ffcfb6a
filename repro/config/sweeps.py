"""Reads what a person typed, KEY=VALUE, with Hydra's grammar, and divides sweeps into points.

Commas sweep, `all` sweeps a group, and an experiment has sweeps of its own, whose keys what is typed replaces.
"""

import functools
import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from repro.config import groups
from repro.config.schema import ConfigError

MOST = 10_000  # values of one key in a sweep
OF_NETWORK = ("name", "title", "alpha_s", "beta_s_per_byte", "bits_per_s")  # the keys of a network's file


def once(overrides: list[str]) -> list[str]:
    """Returns the keys of the overrides. Raises ConfigError if one is given twice."""
    keys = [text.partition("=")[0] for text in overrides]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        words = " ".join(text for key, text in zip(keys, overrides, strict=True) if key == twice)
        raise ConfigError(f"{words}: {twice} is given twice; commas sweep, as in {twice}=A,B.")
    return keys


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
def parse(text: str) -> Any:
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
    except (HydraException, ValueError):  # the second: of a number with thousands of digits
        pass
    value = text[len(name) + 1 :]
    if value.startswith("~/"):  # in quotes it would be a folder called ~
        raise ConfigError(f"{text}: the shell leaves ~ as it is behind =. Type {name}={value.replace('~/', '$HOME/')}.")
    words = value.split(",")
    if len(words) > 1 and not all(words):
        raise ConfigError(
            f"{text}: a comma stands between two values: {name}={','.join(filter(None, words)) or 'A,B'}."
        )
    raise ConfigError(f"{text!r}: the value cannot be read. Put it in quotes: {name}={shlex.quote(quote(value))}.")


def network_files(overrides: list[str]) -> list[str]:
    """Puts the values in PATH.yaml in place of `network=PATH.yaml`, before all others, which so count after them."""
    result: list[str] = []
    of_file: list[str] = []
    changed = any(text.startswith("network.") for text in overrides)  # its times are not those of the file
    for text in overrides:
        name, _, value = text.partition("=")
        path = value.strip("'\"")
        if name != "network" or not path.endswith((".yaml", ".yml")):
            result.append(text)
            continue
        if "," in path and not Path(path).is_file():
            raise ConfigError(f"{text}: only the names of networks sweep; give one file at a time.")
        if not Path(path).exists():
            raise ConfigError(f"network={path}: there is no such file; `repro bench network` writes one.")
        try:
            values = yaml.safe_load(Path(path).read_text())
            if isinstance(values, dict) and (unknown := [str(key) for key in values if key not in OF_NETWORK]):
                hint = groups.near(unknown[0], [*OF_NETWORK], "{}") + f" It has {', '.join(OF_NETWORK)}."
                raise ConfigError(f"network={path}: there is no key {unknown[0]}.{hint}")
            values = {"name": Path(path).stem, "bits_per_s": 0.0, **values}
            # YAML 1.1 reads 9e-9 as a text
            numbers = {k: float(values[k]) for k in ("alpha_s", "beta_s_per_byte", "bits_per_s")}
        except (OSError, yaml.YAMLError, TypeError, KeyError, ValueError) as error:
            wanted = "a YAML file with name, alpha_s and beta_s_per_byte"
            raise ConfigError(f"network={path}: expected {wanted}, got {type(error).__name__}: {error}.") from None
        of_file += [
            f"network.name={quote(str(values['name']) + '_changed' * changed)}",
            *(f"network.{k}={v!r}" for k, v in numbers.items()),
        ]
    return [*of_file, *result]


def check_groups(parsed: list[Any]) -> None:
    for override in parsed:
        if override.key_or_group in groups.GROUPS:
            for text in _texts(override):
                group, _, value = text.partition("=")
                if value == "all":
                    others = ",".join(groups.group_options(group))
                    raise ConfigError(f"{text} stands alone; to leave some out, name the others: {others}.")
                groups.check_option(group, value)


def points(parsed: list[Any]) -> list[list[str]]:
    """Returns every combination of the command line's and the experiment's sweeps."""
    given = {override.key_or_group: _texts(override) for override in parsed}
    found = []
    for experiment in given.pop("experiment", [""]):
        chosen = [experiment] if experiment else []
        for part, asked in _experiment_sweeps(experiment.partition("=")[2], given):
            axes = [[f"{k}={quote(v)}" for v in values] for k, values in part.items() if k not in asked]
            found += [[*chosen, *point] for point in itertools.product(*axes, *asked.values())]
    return found


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


def swept(experiment: str) -> list[str]:
    """Returns the keys that the experiment sweeps, each once. Raises ConfigError."""
    return list(dict.fromkeys(key for part in _blocks(experiment) for key in part))


def check_rate(experiment: str, algo: str, typed: list[str]) -> None:
    """Raises ConfigError where the experiment's learning rate would replace that of an algorithm it does not name.

    Such a rate, as Adam's, is none of SGD.
    """
    own = groups.beside(algo).get("lr")
    if own is None or any(text.startswith("lr=") for text in typed):  # nearly all
        return
    values = groups.read(groups.conf_folder() / "experiment" / f"{experiment}.yaml") or {}
    theirs = values.get("lr")
    chosen = [entry.get("override /algo") for entry in values.get("defaults", []) if isinstance(entry, dict)]
    named = [*chosen, *(name for block in _blocks(experiment) for name in _listed(block.get("algo")))]
    if theirs not in (None, own) and algo not in named:
        raise ConfigError(
            f"experiment={experiment} sets lr={theirs:g}, and algo={algo}, which it does not name, has a learning rate "
            f"of its own; type lr={own:g}, or lr={theirs:g}"
        )


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _blocks(experiment: str) -> list[dict[str, Any]]:
    """Returns the mappings under `sweep:`, one of no keys where there is none."""
    values = groups.read(groups.conf_folder() / "experiment" / f"{experiment}.yaml")
    sweep = (values or {}).get("sweep") or {}
    parts = sweep if isinstance(sweep, list) else [sweep]
    if not all(isinstance(part, dict) for part in parts):
        where = f"conf/experiment/{experiment}.yaml"
        raise ConfigError(f"{where}: sweep: has lines of KEY: [VALUES], or a list of such blocks.")
    return parts


def _experiment_sweeps(name: str, given: dict[str, list[str]]) -> list[tuple[dict[str, list], dict[str, list[str]]]]:
    """Returns the mappings under `sweep:`, each with the overrides that replace what it has.

    Of several mappings those count that hold a value given by the user, if any does, and such a value goes only to
    those that hold it: another network of the same experiment has a batch of its own. An algorithm that none holds
    goes to those that set no option of an algorithm, if there are such, and a model to those of the first model.
    """
    if not name:
        return [({}, given)]
    parts = _blocks(name)
    # an empty list is a value (density_warmup): nobody sweeps over nothing
    chosen = [({k: v if v and isinstance(v, list) else [v] for k, v in part.items()}, given) for part in parts]
    for k, texts in given.items():
        held = [
            {text for text in texts if value(text) in [value(f"{k}={quote(v)}") for v in part.get(k, [])]}
            for part, _ in chosen
        ]
        in_some = set().union(*held)
        rest = {text for text in texts if text not in in_some}
        takes = [bool(mine) or not in_some for mine in held]
        if k == "algo" and rest:  # an algorithm of no block has not the options that a block gives to its own
            plain = [not any(key.startswith("algo.") for key in part) for part, _ in chosen]
            both = [one and other for one, other in zip(takes, plain, strict=True)]
            takes = next((some for some in (both, plain) if any(some)), takes)
        if k == "model" and rest:  # nor has a model the batch and the images that a block gives to another
            first = next((part[k][0] for part, _ in chosen if k in part), None)
            takes = [first in part.get(k, [first]) for part, _ in chosen]
        chosen = [
            (part, asked | {k: [text for text in texts if text in mine or (take and text in rest)]})
            for (part, asked), mine, take in zip(chosen, held, takes, strict=True)
            if mine or (take and rest)
        ]
    return chosen


@functools.cache
def value(text: str) -> str:
    """Returns what an override sets, written alike for 0, 0.0 and 0e0."""
    return repr(_alike(parse(text).value()))


def _alike(typed: Any) -> Any:
    if isinstance(typed, list):
        return [_alike(one) for one in typed]
    return int(typed) if isinstance(typed, float) and typed.is_integer() else typed


def check_one_folder(parsed: list[Any], first: list[str], second: list[str]) -> None:
    """Raises ConfigError where two points of one run folder differ in a key that a person sweeps, as `threads=1,2`.

    In keys of an experiment's own sweep they may: its mappings overlap where a person replaces what sets them apart.
    """
    for key in (override.key_or_group for override in parsed if len(_texts(override)) > 1):
        if key == "scale_schedule":  # with all epochs of the schedule, both are the same run to the bit
            continue
        one, other = (next(text for text in point if text.partition("=")[0] == key) for point in (first, second))
        if one != other:
            raise ConfigError(
                f"{one} and {other}: both would be one run, as {key} is not in the name of its folder. "
                "Type them one at a time, each with its own results=FOLDER."
            )
