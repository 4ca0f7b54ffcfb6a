"""Whether seconds that a file keeps of an earlier command are those that the same command would time now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from repro.config.schema import ConfigError


def other(file: Path, what: str, before: object, asked: object) -> ConfigError:
    """Returns the error that `file` has rows of another `what` than is asked for."""
    return ConfigError(
        f"{file} was made with other settings ({what}: {before}, not {asked}), and its rows would not agree with new "
        "ones. Type what it was made with, or move the file elsewhere and type this again."
    )


def check(file: Path, model: str, before: Mapping[str, object], asked: Mapping[str, object]) -> None:
    """Raises ConfigError where `before`, the settings of what `file` has of a model, has other values than `asked`."""
    differ = [name for name, value in asked.items() if before[name] != value]
    if differ:
        kept, now = (" ".join(f"{name}={settings[name]}" for name in differ) for settings in (before, asked))
        raise other(file, model, kept, now)
