"""Which run folder is for the images that are here: one that holds a run on other images is not gone on with.

The run id is made from the settings before any image is read. So provenance.json keeps the fingerprint of the images,
and where a folder has another one, the settings get `data.fingerprint`, and with it a run id and a folder of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from repro import data
from repro.config.schema import Config, ConfigError
from repro.runs import status_file


def chosen(configs: Sequence[Config], say: Callable[[str], None]) -> list[Config]:
    """Returns `configs`, with `data.fingerprint` where their folder holds a run on other images, which `say` is told.

    Where the images are not here, are generated, or not read, as those of a stated node, there is nothing to compare.
    Raises ConfigError for settings that ask for another fingerprint than the images have.
    """
    seen: dict[tuple[str, str], data.Content | None] = {}
    found = []
    for config in configs:
        before = trained_on(config.folder)
        # of a stated node, or where there is no run, no folder of images need be read
        if config.node is not None or (before is None and not config.data.fingerprint):
            found.append(config)
            continue
        place = config.data.name, config.data.root
        if place not in seen:
            seen[place] = data.content(*place)
        found.append(_of_run(config, before, seen[place], say))
    return found


def trained_on(folder: Path) -> data.Content | None:
    """Returns what the run in `folder` read; None where there is no run. Old runs have a description alone."""
    said = status_file.read_object(folder / "provenance.json")
    description, fingerprint = said.get("data", ""), said.get("fingerprint", "")
    if not said or not isinstance(description, str) or not isinstance(fingerprint, str):
        return None
    return data.Content(description, fingerprint)


def check(config: Config, here: data.Content) -> None:
    """Raises ConfigError where a run is not of the data that were loaded: they may have been fetched since `chosen`."""
    if not here.fingerprint:  # they are generated
        return
    _check_asked(config, here)
    before = trained_on(config.folder)
    if before is not None and not config.data.fingerprint and not before.may_be(here):
        raise ConfigError(
            f"{config.folder} holds a run on {before}, and data.root={config.data.root} has got {here} now: "
            "the same command once more gives it a run of its own"
        )


def _check_asked(config: Config, here: data.Content) -> None:
    if config.data.fingerprint and config.data.fingerprint != here.fingerprint:
        raise ConfigError(
            f"data.fingerprint={config.data.fingerprint}: data.root={config.data.root} holds {here}. "
            "Name the folder of the images that you mean, or leave data.fingerprint out."
        )


def _of_run(
    config: Config, before: data.Content | None, here: data.Content | None, say: Callable[[str], None]
) -> Config:
    if here is None:
        return config
    _check_asked(config, here)
    if config.data.fingerprint:
        return config
    if before is None or before.may_be(here):
        return config
    own = dataclasses.replace(config, data=dataclasses.replace(config.data, fingerprint=here.fingerprint))
    say(f"{config.folder} holds a run on {before}; data.root={config.data.root} holds {here}: its run is {own.folder}")
    return own
