"""Packs a data set into one file: an uncompressed .npz; reading checks the CRC-32 that each array carries.

Any tool with NumPy opens it, nothing in it is pickled, and the same images give the same bytes.
"""

import hashlib
import os
import shlex
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from repro import screen
from repro.config.schema import ConfigError
from repro.whole_files import alone

# what zipfile and NumPy raise on changed bytes: NumPy reads an array's shape as Python
DAMAGE = (
    OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, tokenize.TokenError,
)  # fmt: skip

ASK = (
    "Ask for permission to read it, or choose another folder with data.root=FOLDER (`repro run`) or --root FOLDER "
    "(`repro data`)."
)


class Unreadable(ConfigError):
    """Says that this user may not read a file, which may well be good: making it again could replace another user's."""

    def __init__(self, path: Path, reason: str | None) -> None:
        super().__init__(path, reason)  # both, so that a rank's error can be pickled
        self.path, self.state = path, f"cannot be read: {reason}."

    def __str__(self) -> str:
        return f"{self.path} {self.state} {ASK}"


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes the file whole or not at all. Raises ConfigError if the place cannot be written or is full."""
    pending = path.with_name(f".{path.name}.part")  # one name, so that what a kill leaves is written over
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(pending) as file:
            try:
                np.savez(file, **arrays)  # type: ignore[arg-type]  # its stub takes **kwargs for allow_pickle
                file.flush()
                os.fsync(file.fileno())
                pending.replace(path)
            except BaseException:
                pending.unlink(missing_ok=True)
                raise
    except OSError as error:
        size = sum(array.nbytes for array in arrays.values())
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}. It needs {screen.size(size)}; "
            "choose a folder with data.root=FOLDER (`repro run`) or --root FOLDER (`repro data`)."
        ) from None


def read(path: Path, names: Iterable[str], again: str) -> dict[str, np.ndarray]:
    """Returns these arrays of the file. Raises ConfigError if a bit changed, with what to type: `again` as `told`.

    Raises Unreadable where this user may not read it.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except PermissionError as error:
        raise Unreadable(path, error.strerror) from None
    except DAMAGE as error:
        raise ConfigError(f"{path} is damaged ({error}). Make it again: {told(again, path.parent)}") from None


def fingerprint(path: Path, names: Iterable[str], again: str) -> str:
    """Returns 12 hexadecimal digits for these arrays, from the CRC-32 and the size that the file has of each.

    Raises ConfigError and Unreadable as `read` does.
    """
    try:
        with zipfile.ZipFile(path) as file:
            held = [file.getinfo(f"{name}.npy") for name in names]
    except PermissionError as error:
        raise Unreadable(path, error.strerror) from None
    except DAMAGE as error:
        raise ConfigError(f"{path} is damaged ({error}). Make it again: {told(again, path.parent)}") from None
    text = "".join(f"{one.filename} {one.CRC:08x} {one.file_size}\n" for one in held)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def is_there(path: Path) -> bool:
    """Returns whether the file exists. Raises Unreadable where this user may not look into its folder."""
    try:
        return path.exists()
    except PermissionError as error:
        raise Unreadable(path, error.strerror) from None


def is_whole(path: Path) -> bool:
    """Returns whether the file ends as it should: a quick look that finds truncation, but no changed bit.

    Raises Unreadable as `read` does.
    """
    try:
        with path.open("rb") as file:  # not is_zipfile(path), to which a file that may not be read is no zip file
            return zipfile.is_zipfile(file)
    except PermissionError as error:
        raise Unreadable(path, error.strerror) from None
    except OSError:
        return False


def is_undamaged(path: Path) -> bool:
    """Returns whether no bit of the file changed: reads all of it, a piece at a time.

    Raises Unreadable as `read` does.
    """
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except PermissionError as error:
        raise Unreadable(path, error.strerror) from None
    except DAMAGE:
        return False


def told(what: str, root: Path) -> str:
    """Puts the folder of the data sets where a command to type has {root}."""
    return what.replace("{root}", f" --root {shlex.quote(str(root))}")
