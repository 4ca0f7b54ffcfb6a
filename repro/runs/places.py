"""Checks whether files can be written to a folder, before hours of work and without leaving anything there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from repro.config.schema import ConfigError

ELSEWHERE = "Name another place with --out."


def check_folder(folder: Path, otherwise: str = ELSEWHERE) -> None:
    """Raises ConfigError, with `otherwise` as what to type, where files could not be made in the folder.

    Makes and removes a file with a name of its own, so that two starts cannot collide, in the folder or, if it does not
    exist, in the nearest one above it. No folder: `repro status` looks into all of them, and would find it gone.
    """
    try:
        existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        descriptor, file = tempfile.mkstemp(prefix=".writable-", dir=existing)
        os.close(descriptor)
        os.unlink(file)
    except OSError as error:
        raise ConfigError(f"The folder {folder} cannot be written: {error.strerror or error}. {otherwise}") from None


def check_file(file: Path) -> None:
    """Does the same for a file's folder; the file itself may exist, but must be no folder."""
    if file.is_dir():
        raise ConfigError(f"{file} is a folder, and a file is to go there. {ELSEWHERE}")
    check_folder(file.parent)
