"""Writes files that are whole or not there, and says what to do where a disk is full."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

FULL = (errno.ENOSPC, errno.EDQUOT)


def write_whole(file: Path, content: str | bytes) -> None:
    """Writes the file whole or not at all, also in a power cut, and beside others who write it: the last one's stays.

    A link stays a link, and a device is written to.
    """
    data = content.encode() if isinstance(content, str) else content
    place = Path(os.path.realpath(file))
    if place.exists() and not place.is_file():
        place.write_bytes(data)
        return
    unfinished = place.with_name(place.name + ".unfinished")
    try:
        with alone(unfinished) as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
            unfinished.replace(place)
    except OSError as error:
        error.filename = error.filename or str(file)
        with suppress(OSError):
            unfinished.unlink()  # on a full disk this makes room for the status
        raise


def alone(file: Path) -> BinaryIO:
    """Opens an empty file to write once nobody else writes it, as far as the file system has locks."""
    while True:
        open(file, "ab").close()  # makes it
        try:
            stream = open(file, "r+b")  # noqa: SIM115  (who writes closes it)
        except FileNotFoundError:
            continue  # another writer has moved it into its place
        with suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(stream.fileno()), os.stat(file)):
                stream.truncate(0)
                return stream
        stream.close()


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Yields an empty .part beside the file, which takes its place at the end; an error before leaves both.

    A link stays a link, and a device is written to.
    """
    place = Path(os.path.realpath(file))
    part = place if place.exists() and not place.is_file() else place.with_name(place.name + ".part")
    part.write_text("")
    yield part
    part.replace(place)


def overwrite(file: Path, content: str) -> None:
    """Writes over the content of an existing file, in its own blocks: this needs no room. Spaces fill what is left."""
    with open(file, "r+b") as stream:
        stream.write(content.rstrip("\n").encode().ljust(os.fstat(stream.fileno()).st_size - 1) + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def explain(error: OSError) -> str:
    """Returns what went wrong in one sentence; of a full disk also what to do."""
    what = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    if error.errno in FULL:
        return (
            f"{what}. Make room: the same command then goes on. Or move what is there to another place, and name that "
            "with results=FOLDER (`repro run`) or --out FOLDER: in an empty one all begins anew."
        )
    return what
