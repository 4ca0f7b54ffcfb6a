"""A data set packed into one file: an uncompressed .npz; reading checks the CRC-32 that each array carries.

Any tool with NumPy opens it, nothing in it is pickled, and the same images give the same bytes.
"""

import os
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from repro.config import ConfigError


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the file whole or not at all. Raises ConfigError if the place cannot be written or is full."""
    pending = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with pending.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # its stub takes **kwargs for allow_pickle
            file.flush()
            os.fsync(file.fileno())
        pending.replace(path)
    except OSError as error:
        size = sum(array.nbytes for array in arrays.values())
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}. It needs {size / 1e6:.0f} MB; "
            "choose a folder with data.root=FOLDER (`repro run`) or --root FOLDER (`repro data`)."
        ) from None
    finally:
        if pending.parent.is_dir():
            pending.unlink(missing_ok=True)


def read(path: Path, names: Iterable[str], again: str) -> dict[str, np.ndarray]:
    """These arrays of the file. Raises ConfigError, with `again` as what to type, if a bit changed."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(f"{path} is damaged ({error}). Make it again: {again}") from None


def is_whole(path: Path) -> bool:
    """Whether the file ends as it should: a quick look that finds truncation, but no changed bit."""
    return zipfile.is_zipfile(path)
