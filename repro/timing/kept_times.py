"""Whether seconds that a file keeps of an earlier command are those that the same command would time now."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from repro.config.compose import algorithm, compose
from repro.config.parts import Algo
from repro.config.schema import Config, ConfigError
from repro.report import summaries
from repro.timing import node_profile


def read(file: Path, command: str, keys: Collection[str]) -> dict[str, Any]:
    """Returns what `file` has of an earlier `command`, nothing where it is not there. Raises ConfigError.

    Others' files, which lack one of `keys`, are refused.
    """
    before = summaries.read_json(file) if file.exists() else {}
    if before and not (isinstance(before, dict) and before.keys() >= set(keys)):
        raise ConfigError(f"{file} was not made by {command}, and would be lost; name another file with --out.")
    return dict(before)


def settings(config: Config) -> dict[str, Any]:
    """Returns what the seconds of a network depend on, beside its batch and the machine."""
    return {
        "parameters": sum(map(math.prod, node_profile.layers(config))), "image_size": config.data.image_size,
        "sequence": config.data.sequence, "precision": config.precision,
    }  # fmt: skip


def options(algo: Algo) -> dict[str, Any]:
    """Returns the options of an algorithm that are not its defaults, but for the wire, which is in its label."""
    own, defaults = ({**vars(one), **one.options} for one in (algo, algorithm(algo.name, {})))
    return {name: value for name, value in own.items() if value != defaults[name] and name not in ("wire", "options")}


def check(file: Path, model: str, before: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raises ConfigError where `before`, the settings of what `file` has of a model, has other values than `asked`.

    What an old file does not say has the value that is the model's default.
    """
    if asked.keys() - before.keys():
        (usual,) = compose([f"model={model}"])
        before = {"accumulate": usual.accumulate} | settings(usual) | {**before}
    if differ := [name for name, value in asked.items() if before[name] != value]:
        kept, now = (" ".join(f"{name}={values[name]}" for name in differ) for values in (before, asked))
        raise other(file, model, kept, now)


def other(file: Path, what: str, before: object, asked: object) -> ConfigError:
    """Returns the error that `file` has rows of another `what` than is asked for."""
    return ConfigError(
        f"{file} was made with other settings ({what}: {before}, not {asked}), and its rows would not agree with new "
        "ones. Type what it was made with, or name another file with --out."
    )
