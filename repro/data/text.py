"""Loads any text as words: a file, a folder or a zip of .txt, or the reference that comes with each Python."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np

from repro.config.parts import Data
from repro.config.schema import ConfigError
from repro.data import Content, Dataset, _pack
from repro.data._text import packed, words

TEST = 10  # ours: the last of so many parts of each file is the text to test with
AGAIN = "`repro data prepare text --from FILE_OR_FOLDER{root}`; without --from it is Python's own reference"


def fetch(data: Data) -> None:
    if not _pack.is_there(_path(Path(data.root))):
        prepare(None, Path(data.root))


def training_samples(data: Data) -> int:
    return packed.samples(_path(Path(data.root)), data, AGAIN)


def load(data: Data, seed: int, on_bad_image: str) -> Dataset:
    fetch(data)
    return packed.load(_path(Path(data.root)), ["test"], "test", data, seed, AGAIN)


def status(root: Path) -> dict[str, Any]:
    return packed.status(_path(root), ["test"], AGAIN, AGAIN)


def content(root: Path) -> Content | None:
    return packed.content(_path(root), ["test"], AGAIN)


def prepare(source: str | Path | None, root: Path) -> Path:
    """Packs all of `source`; None = the reference of the language that comes with this Python (PSF licence).

    Raises ConfigError where the text to train or to test with is shorter than any sequence and the word after it.
    """
    if source is None:
        texts, name = {"reference": _reference()}, f"reference of Python {platform.python_version()}"
    else:
        texts, name = words.read(Path(source)), Path(source).name
    parts: dict[str, list[list[str]]] = {"train": [], "test": []}
    for text in texts.values():
        sentences = words.sentences(text)
        last = len(sentences) - len(sentences) // TEST
        parts["train"] += sentences[:last]
        parts["test"] += sentences[last:]
    numbered = words.numbered({**parts})
    part = min(parts, key=lambda name: len(numbered[name]))
    if len(numbered[part]) < 2:
        raise ConfigError(
            f"{source}: its text to {part} with has {len(numbered[part])} words, less than one sample of any sequence. "
            f"Take a longer text: of {TEST} sentences the last is to test with."
        )
    _pack.write(_path(root), numbered | {"source": np.array(name)})
    return _path(root)


def _reference() -> str:
    """Returns each paragraph once: many stand in several chapters, and would be in both parts."""
    from pydoc_data.topics import topics

    paragraphs = (" ".join(text.split()) for name in sorted(topics) for text in topics[name].split("\n\n"))
    return "\n\n".join(dict.fromkeys(paragraphs))


def _path(root: Path) -> Path:
    return root / "text.npz"
