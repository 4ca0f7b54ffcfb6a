"""Says what to do where a run folder lacks what its settings, or where it was made, are told by."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from repro.config.compose import to_yaml
from repro.config.schema import Config
from repro.whole_files import write_whole

CONFIG, PROVENANCE = "config.yaml", "provenance.json"
REMEDIES = {  # to end a sentence with, that names the file
    CONFIG: "type its `repro run` again to have it written anew",
    PROVENANCE: (
        "put a copy of it back, or remove the folder and type its `repro run` again: "
        "nothing else says which data and machine it is of"
    ),
}


def mended(config: Config) -> Iterator[str]:
    """Writes config.yaml where a run that is done lacks it, and yields what to say of that and of what stays missing.

    The name of the folder has the hash of all settings that change the result, so that they are known to be these.
    """
    if not os.path.lexists(config.folder / CONFIG):
        try:
            write_whole(config.folder / CONFIG, to_yaml(config))
            yield f"{CONFIG} was missing in {config.folder}; it is written anew"
        except OSError as error:  # a folder for reading alone, say
            yield f"{CONFIG} is missing in {config.folder} and cannot be written: {error.strerror or error}"
    if not os.path.lexists(config.folder / PROVENANCE):
        yield f"{PROVENANCE} is missing in {config.folder}, and results leave the run out: {REMEDIES[PROVENANCE]}"


def told(folder: Path) -> str | None:
    """Returns why results leave out a run that is done, None where all is there."""
    gone = [name for name in REMEDIES if not os.path.lexists(folder / name)]
    return f"{gone[0]} is missing, and results leave the run out: {REMEDIES[gone[0]]}" if gone else None


def remedy(file: Path) -> str:
    """Returns the end of a sentence on a missing file, "" where nothing is known to do."""
    return f"; {REMEDIES[file.name]}" if file.name in REMEDIES else ""
