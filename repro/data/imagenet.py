"""Loads ImageNet (Deng et al., 2009), or images in its layout: train/<class>/*.JPEG, val/<class>/*.JPEG."""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from repro.config.parts import Data
from repro.config.schema import ConfigError
from repro.data import Content, Dataset, _pack

SIZED = 4096  # images whose sizes are in the fingerprint: all of 1.3 million would take minutes on a shared disk
SUFFIXES = (".jpeg", ".jpg", ".png")
HOW = (
    "Get it from image-net.org (it needs an account), put train/<class>/*.JPEG and val/<class>/*.JPEG into "
    "one folder and type `repro data prepare imagenet --from FOLDER{root}`. data=digits needs no download."
)


@contextmanager
def _may_read() -> Iterator[None]:
    """Raises Unreadable where this user may not look into a folder."""
    try:
        yield
    except PermissionError as error:
        raise _pack.Unreadable(Path(error.filename), error.strerror) from None


@_may_read()
def fetch(data: Data) -> None:
    folder, root = _path(Path(data.root)), Path(data.root)
    if folder.is_dir():
        return
    if root.name == "imagenet" and (root / "train").is_dir():
        raise ConfigError(
            f"data.root={root}: {folder} does not exist, as data.root is the folder that holds imagenet/. "
            f"Type data.root={root.parent}."
        )
    link = (
        f"`repro data prepare imagenet --from {shlex.quote(str(root))} --root data`"
        if (root / "train").is_dir()
        else ""
    )
    hint = f"That folder has train/ itself: {link} links to it." if link else _pack.told(HOW, root)
    raise ConfigError(f"data.root={root} must hold imagenet/: {folder} does not exist. {hint}")


def training_samples(data: Data) -> int:
    folder = _path(Path(data.root))
    return len(_files(folder / "train", classes(folder))[0])


def test_images(data: Data) -> int:
    return 50_000  # of a smaller folder there are less


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

    from repro.data._images.files import FileImages

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
    has = _content(folder, len(names), train.paths, test.paths)
    return Dataset("imagenet", has.description, has.fingerprint, len(names), data.image_size, seed, train, test)


@_may_read()
def content(root: Path) -> Content | None:
    """Makes the fingerprint from the names of all images and the sizes of some; place and date do not matter.

    Raises ConfigError where the folder is not laid out as it should be.
    """
    folder = _path(root)
    if not folder.is_dir():
        return None
    names = classes(folder)
    train, test = (_files(folder / split, names)[0] for split in ("train", "val"))
    return _content(folder, len(names), train, test)


def _content(folder: Path, classes: int, train: Sequence[str], test: Sequence[str]) -> Content:
    complete = (classes, len(train), len(test)) == (1000, 1_281_167, 50_000)
    part = "" if complete else f" ({classes} classes, {len(train)} + {len(test)} images)"
    paths = _all(train, test)
    digest = hashlib.blake2b("\n".join(paths).encode(errors="surrogateescape"), digest_size=6)
    for size in _sizes(folder, paths):
        digest.update(f"\n{size}".encode())
    return Content("imagenet" + part, digest.hexdigest())


def _all(train: Sequence[str], test: Sequence[str]) -> list[str]:
    return [f"train/{path}" for path in train] + [f"val/{path}" for path in test]


def _sizes(folder: Path, paths: Sequence[str]) -> list[int]:
    """Returns the bytes of SIZED of the images at most, evenly spread."""
    return [(folder / path).stat().st_size for path in paths[:: -(-len(paths) // SIZED)]]


def labels(data: Data, trained_on: Content) -> list[str] | None:
    """Returns the names of the class folders, which are WordNet's numbers in ImageNet."""
    root = Path(data.root)
    return classes(_path(root)) if trained_on.is_at(content(root)) else None


def shorter_side(image_size: int) -> int:
    from repro.data._images import crops

    return crops.shorter_side(image_size)


@_may_read()
def classes(folder: Path) -> list[str]:
    """Returns the names of the class folders, in order.

    Raises ConfigError unless train/ and val/ have the same, two or more.
    """
    found = []
    for split in ("train", "val"):
        if not (folder / split).is_dir():
            raise ConfigError(f"{folder} has no folder {split}/. Expected train/<class>/*.JPEG and val/<class>/*.JPEG.")
        found.append({e.name for e in os.scandir(folder / split) if e.is_dir() and not e.name.startswith(".")})
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
    if len(train) < 2:
        raise ConfigError(f"{folder / 'train'} has one class folder, {min(train)!r}: two classes are needed.")
    return sorted(train)


@_may_read()
def _files(folder: Path, names: list[str]) -> tuple[list[str], np.ndarray]:
    """Returns paths relative to the folder, in order, and the number of the class of each."""
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        images = sorted(e.name for e in os.scandir(folder / name) if _may_be_image(e.name) and _is_file(e))
        if not images:
            raise ConfigError(f"{folder / name} holds no image (*.JPEG).")
        paths += [os.path.join(name, image) for image in images]
        labels += [label] * len(images)
    return paths, np.array(labels)


def _may_be_image(name: str) -> bool:
    """Tells it by the name; macOS puts a ._X.JPEG, which is none, beside each X.JPEG that it copies or packs."""
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _is_file(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):  # a link that leads to itself
        if entry.is_file():
            return True
    logging.getLogger(__name__).warning("left out: %s is no file", entry.path)
    return False


def status(root: Path) -> dict[str, Any]:
    path = _path(root)
    told = {"path": path, "size": 0, "how": _pack.told(HOW, root)}
    try:
        with _may_read():
            if not path.is_dir():
                return {"state": "missing", **told}
            names = classes(path)
            train, test = (_files(path / split, names)[0] for split in ("train", "val"))
            has = _content(path, len(names), train, test)
            sizes = _sizes(path, _all(train, test))
    except _pack.Unreadable as error:
        return {"state": error.state, **told, "path": error.path, "how": _pack.ASK}
    except ConfigError as error:
        return {"state": str(error), **told}
    count = len(train) + len(test)
    return {
        "state": "ready", **told, "size": sum(sizes) * count // len(sizes), "size_from": min(count, len(sizes)),
        "kind": "JPEG", "classes": len(names), "images": (len(train), len(test)), "fingerprint": has.fingerprint,
    }  # fmt: skip


def prepare(source: str | Path | None, root: Path) -> Path:
    """Checks the layout of the folder `source` and links to it under `root`; nothing is copied."""
    if source is None:
        raise ConfigError(f"ImageNet cannot be downloaded without an account. {_pack.told(HOW, root)}")
    folder = Path(source)
    with _may_read():
        if not folder.is_dir():
            raise ConfigError(f"{folder} is not a folder. {_pack.told(HOW, root)}")
        names = classes(folder)
        for split in ("train", "val"):
            _files(folder / split, names)
        _tell_others(folder, names)
    link, pending = _path(root), root / f".imagenet.{os.getpid()}.part"
    if link.resolve() == folder.resolve():  # the images lie there, or are linked to already
        return link
    try:
        root.mkdir(parents=True, exist_ok=True)
        pending.symlink_to(folder.resolve(), target_is_directory=True)
        pending.replace(link)
    except OSError as error:
        with suppress(OSError):
            pending.unlink()
        raise ConfigError(f"{link} cannot be made: {error}. Choose another folder with --root FOLDER.") from None
    return link


def _tell_others(folder: Path, names: Sequence[str]) -> None:
    """Warns of files beside the images that are not read, as a folder may be of another format in part."""
    others = Counter(
        Path(entry.name).suffix.lower() or "no suffix"
        for split in ("train", "val")
        for name in names
        for entry in os.scandir(folder / split / name)
        if not (entry.name.startswith(".") or _may_be_image(entry.name) or entry.is_dir())
    )
    if others:
        counts = ", ".join(f"{number} with {suffix}" for suffix, number in others.most_common(5))
        told = f"left out: %s of the files are no {', '.join(SUFFIXES)} (%s)"
        logging.getLogger(__name__).warning(told, sum(others.values()), counts)


def _path(root: Path) -> Path:
    return root / "imagenet"
