"""Turns texts into numbers of words: the commonest words of the training text have the lowest numbers."""

from __future__ import annotations

import functools
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath, PurePosixPath

import numpy as np

from repro import screen
from repro.config.schema import ConfigError
from repro.data._zips import BROKEN, is_hidden

UNKNOWN, END = "<unk>", "<eos>"  # as in PTB: a word that is not in the vocabulary, the end of a sentence
MOST_BYTES = 1_000_000_000  # of one file


def read(source: Path) -> dict[str, str]:
    """Returns the text of a .txt file, or of each in a folder or a zip, by its path there, in the paths' order.

    Raises ConfigError where there is none, where one cannot be read, or is no UTF-8.
    """
    if source.is_dir():
        paths = {path.relative_to(source): path for path in source.rglob("*")}
        files = {str(name): path for name, path in paths.items() if _may_be_text(name) and path.is_file()}
        contents = {name: _read(path) for name, path in files.items()}
    elif source.is_file() and source.suffix == ".zip":
        contents = _unzipped(source)
    elif source.is_file():
        contents = {source.name: _read(source)}
    else:
        raise ConfigError(f"{source} does not exist as a file or folder. Name a text file, or a folder or zip of .txt.")
    if not contents:
        raise ConfigError(f"{source} holds no .txt file.")
    return {name: _decoded(source, name, contents[name]) for name in sorted(contents)}


def _read(path: Path) -> bytes:
    try:
        return _bounded(path.name, path.stat().st_size, path.read_bytes)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from None


def _unzipped(source: Path) -> dict[str, bytes]:
    contents = {}
    try:
        with zipfile.ZipFile(source) as archive:
            for entry in archive.infolist():
                path = PurePosixPath(entry.filename)
                if _may_be_text(path) and not entry.is_dir():
                    read_entry = functools.partial(archive.read, entry)
                    contents[str(path)] = _bounded(path.name, entry.file_size, read_entry)
    except (OSError, RuntimeError, *BROKEN) as error:  # RuntimeError: it has a password
        raise ConfigError(f"{source} cannot be read as a zip file: {error}. Is it complete?") from None
    return contents


def _may_be_text(path: PurePath) -> bool:
    return path.suffix.lower() == ".txt" and not is_hidden(path)


def _bounded(name: str, size: int, read_bytes: Callable[[], bytes]) -> bytes:
    if size > MOST_BYTES:
        raise ConfigError(f"{name} has {screen.size(size)}; a text may have {screen.size(MOST_BYTES)} at most.")
    return read_bytes()


def _decoded(source: Path, name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: {name} is no UTF-8 text: {error}.") from None


def sentences(text: str) -> list[list[str]]:
    """Divides a plain text: lower-case words and punctuation marks; a sentence ends at . ! ? or an empty line.

    A mark that is repeated, as in the rules of a table, counts once.
    """
    parts = re.split(r"(?<=[.!?])\s+|\n\s*\n", re.sub(r"([^\w\s])\1+", r"\1", text.lower()))
    found = [re.findall(r"\w+|[^\w\s]", part) for part in parts]
    return [[*words, END] for words in found if words]


def lines(text: str) -> list[list[str]]:
    """Divides a text whose words are separated by spaces already, one sentence a line."""
    return [[*line.split(), END] for line in text.splitlines() if line.strip()]


def numbered(texts: dict[str, Sequence[list[str]]]) -> dict[str, np.ndarray]:
    """Returns each of `texts` as int32 [words], and `vocabulary`, which `train` alone makes.

    Number 0 is UNKNOWN; the others follow by how often they are in `train`, equal ones in the alphabet's order. So the
    first n numbers are the vocabulary of n words. A word that is not in `train` is 0.
    """
    counts = Counter(word for sentence in texts["train"] for word in sentence)
    counts.pop(UNKNOWN, None)
    vocabulary = [UNKNOWN, *sorted(counts, key=lambda word: (-counts[word], word))]
    number = {word: at for at, word in enumerate(vocabulary)}
    arrays = {
        name: np.array([number.get(word, 0) for sentence in text for word in sentence], np.int32)
        for name, text in texts.items()
    }
    return arrays | {"vocabulary": np.frombuffer("\n".join(vocabulary).encode(), np.uint8)}
