"""Loads the Penn Treebank as language models have it (Mikolov et al., 2010): three files, which the user must have."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from repro.config.parts import Data
from repro.config.schema import ConfigError
from repro.data import Content, Dataset, _pack
from repro.data._text import packed, words

FILES = {part: f"ptb.{part}.txt" for part in ("train", "valid", "test")}
TESTS = ("valid", "test")
AGAIN = "`repro data prepare ptb --from FOLDER_OR_ZIP{root}`"
HOW = (
    f"is not published for everyone, so nothing downloads it: {AGAIN} packs {', '.join(FILES.values())}. data=text "
    "needs no files."
)


def fetch(data: Data) -> None:
    if not _pack.is_there(path := _path(Path(data.root))):
        raise ConfigError(f"{path} does not exist. PTB {_pack.told(HOW, path.parent)}")


def training_samples(data: Data) -> int:
    return packed.samples(_path(Path(data.root)), data, AGAIN)


def load(data: Data, seed: int, on_bad_image: str) -> Dataset:
    fetch(data)
    return packed.load(_path(Path(data.root)), TESTS, data.options["held_out"], data, seed, AGAIN)


def status(root: Path) -> dict[str, Any]:
    return packed.status(_path(root), TESTS, f"ptb {HOW}", AGAIN)


def content(root: Path) -> Content | None:
    return packed.content(_path(root), TESTS, AGAIN)


def prepare(source: str | Path | None, root: Path) -> Path:
    """Packs the three files, which may lie anywhere in a folder or a zip, as the archive of 2010 has them."""
    if source is None:
        raise ConfigError(f"PTB {_pack.told(HOW, root)}")
    texts = words.read(Path(source))
    found = {part: [name for name in texts if PurePosixPath(name).name == file] for part, file in FILES.items()}
    for part, names in found.items():
        if len(names) != 1:
            raise ConfigError(f"{source} holds {len(names)} files {FILES[part]}; one is needed. Name their folder.")
    arrays = words.numbered({part: words.lines(texts[name]) for part, (name,) in found.items()})
    _pack.write(_path(root), arrays | {"source": np.array("")})
    return _path(root)


def _path(root: Path) -> Path:
    return root / "ptb.npz"
