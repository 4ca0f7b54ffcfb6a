"""ImageNet (Deng et al., 2009), or images in its layout: train/<class>/*.JPEG, val/<class>/*.JPEG."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repro.config import ConfigError, Data
from repro.data import Dataset

SUFFIXES = (".jpeg", ".jpg", ".png")
HOW = (
    "Get it from image-net.org (it needs an account), put train/<class>/*.JPEG and val/<class>/*.JPEG into "
    "one folder and type `repro data prepare imagenet --from FOLDER`. data=digits needs no download."
)


def fetch(data: Data) -> None:
    folder = _path(Path(data.root))
    if not folder.is_dir():
        raise ConfigError(f"{folder} does not exist. {HOW}")


def load(data: Data, seed: int, on_bad_image: str) -> Dataset:
    fetch(data)
    return _dataset(_path(Path(data.root)), data, seed, on_bad_image, **data.options)


def _dataset(
    folder: Path,
    data: Data,
    seed: int,
    on_bad_image: str,
    workers: int,
    prefetch: int,
    mean: Sequence[float],
    std: Sequence[float],
) -> Dataset:
    import torch

    from repro.images.files import FileImages
    from repro.images.memory import check_normalisation

    check_normalisation(mean, std)
    if workers < 1 or prefetch < 0:
        raise ConfigError(f"data.workers={workers} data.prefetch={prefetch}: at least 1 and 0.")
    names = classes(folder)
    if len(names) != data.classes:
        raise ConfigError(
            f"data.classes={data.classes}, but {folder} has {len(names)} class folders: "
            f"type data.classes={len(names)}, or complete the folder."
        )
    splits = {}
    for split in ("train", "val"):
        paths, labels = _files(folder / split, names)
        splits[split] = FileImages(
            folder=folder / split,
            paths=paths,
            labels=labels,
            size=data.image_size,
            mean=torch.tensor(mean),
            std=torch.tensor(std),
            skip_bad=on_bad_image == "skip",
            workers=workers,
            prefetch=prefetch,
        )
    train, test = splits["train"], splits["val"]
    complete = (len(names), len(train), len(test)) == (1000, 1_281_167, 50_000)
    part = "" if complete else f" ({len(names)} classes, {len(train)} + {len(test)} images)"
    return Dataset("imagenet", "imagenet" + part, len(names), data.image_size, seed, train, test)


def classes(folder: Path) -> list[str]:
    """The names of the class folders, in order. Raises ConfigError unless train/ and val/ have the same."""
    found = []
    for split in ("train", "val"):
        if not (folder / split).is_dir():
            raise ConfigError(f"{folder} has no folder {split}/. Expected train/<class>/*.JPEG and val/<class>/*.JPEG.")
        found.append({entry.name for entry in os.scandir(folder / split) if entry.is_dir()})
    train, val = found
    if not train:
        raise ConfigError(f"{folder / 'train'} has no class folders: expected train/<class>/*.JPEG.")
    if train - val and not val:
        raise ConfigError(
            f"{folder / 'val'} has no class folders. The archive of validation images has none: sort its "
            "images into val/<class>/ first, for example with the well-known script valprep.sh."
        )
    if train != val:
        raise ConfigError(
            f"The class {min(train ^ val)!r} is in train/ or val/ of {folder} only; both need all classes."
        )
    return sorted(train)


def _files(folder: Path, names: list[str]) -> tuple[list[str], np.ndarray]:
    """Paths relative to the folder, in order, and the number of the class of each."""
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        images = sorted(e.name for e in os.scandir(folder / name) if e.name.lower().endswith(SUFFIXES) and e.is_file())
        if not images:
            raise ConfigError(f"{folder / name} holds no image (*.JPEG).")
        paths += [os.path.join(name, image) for image in images]
        labels += [label] * len(images)
    return paths, np.array(labels)


def status(root: Path) -> dict[str, Any]:
    path = _path(root)
    state = "missing" if not path.is_dir() else "ready"
    if state == "ready":
        try:
            classes(path)
        except ConfigError as error:
            state = str(error)
    return {"state": state, "path": path, "size": 0, "how": HOW}


def prepare(source: str | Path | None, root: Path) -> Path:
    """Checks the layout of the folder `source` and links to it under `root`; nothing is copied."""
    if source is None:
        raise ConfigError(f"ImageNet cannot be downloaded without an account. {HOW}")
    folder = Path(source)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder. {HOW}")
    for split in ("train", "val"):
        _files(folder / split, classes(folder))
    link, pending = _path(root), root / f".imagenet.{os.getpid()}.part"
    try:
        root.mkdir(parents=True, exist_ok=True)
        pending.symlink_to(folder.resolve(), target_is_directory=True)
        pending.replace(link)
    except OSError as error:
        pending.unlink(missing_ok=True)
        raise ConfigError(f"{link} cannot be made: {error}. Choose another folder with --root FOLDER.") from None
    return link


def _path(root: Path) -> Path:
    return root / "imagenet"
