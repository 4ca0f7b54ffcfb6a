"""Reads small images from a folder or a zip file laid out as {train,test}/<class>/<image>, at any depth."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath, PurePosixPath

import numpy as np

from repro.config.schema import ConfigError
from repro.data._images.decode import BadImage, decode, read_bounded, read_file
from repro.data._zips import BROKEN, is_hidden
from repro.waiting import track

SUFFIXES = {".jpg", ".jpeg", ".png"}
SPLITS = ("train", "test")
LAYOUT = "expected {train,test}/<class>/<image>.jpg or .png"


def read(source: Path, classes: int, size: int) -> dict[str, np.ndarray]:
    """Returns {train,test}_images uint8 [N, size, size, 3], {train,test}_labels uint8 [N], classes (names), format.

    They are in the order of split, class and file name, whatever the source. Files that are no images by their
    name are ignored. The format is "PNG" where all are, and so may be what was published; else "JPEG". Raises
    ConfigError for any image that is not whole, and for another number of classes.
    """
    with _opened(source) as (paths, read_bytes):
        images = sorted((path for path in paths if _is_image(path)), key=lambda path: path.parts[-3:])
        names = _classes(source, images, classes)
        pixels: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}
        labels: dict[str, list[int]] = {split: [] for split in SPLITS}
        for path in track(images, f"reading {len(images)} images of {source}", len(images)):
            split, label, _ = path.parts[-3:]
            pixels[split].append(_decode(source, path, read_bytes, size))
            labels[split].append(names.index(label))
    arrays = {f"{split}_images": np.stack(pixels[split]) for split in SPLITS}
    arrays |= {f"{split}_labels": np.array(labels[split], np.uint8) for split in SPLITS}
    lossless = all(path.suffix.lower() == ".png" for path in images)
    return arrays | {"classes": np.array(names), "format": np.array("PNG" if lossless else "JPEG")}


@contextmanager
def _opened(source: Path) -> Iterator[tuple[list[PurePath], Callable[[PurePath], bytes]]]:
    """Yields the paths of all files in the source, relative to it, and a function that reads one."""
    if source.is_dir():
        yield [path.relative_to(source) for path in _walk(source, [])], lambda path: read_file(source / path)
        return
    try:
        if not source.is_file():  # a FIFO, for example, would block
            raise OSError("it is no regular file")
        archive = zipfile.ZipFile(source)
    except (OSError, *BROKEN) as error:
        raise ConfigError(f"{source} cannot be read as a zip file: {error}. Is it complete?") from None
    with archive:
        entries: dict[PurePath, zipfile.ZipInfo] = {}  # by their paths without `./` and `//`
        for entry in archive.infolist():
            path = PurePosixPath(entry.filename)
            if entry.is_dir():
                continue
            if path in entries:
                raise ConfigError(f"{source} holds {str(path)!r} twice.")
            entries[path] = entry

        def read_entry(path: PurePath) -> bytes:
            with archive.open(entries[path]) as file:
                return read_bounded(file)

        yield list(entries), read_entry


def _walk(folder: Path, above: list[Path]) -> Iterator[Path]:
    """Yields all files below, through links too. Raises ConfigError for a link that leads back up."""
    here = folder.resolve()
    if here in above:
        raise ConfigError(f"{folder} is a link that leads back to {here}, above it; remove it.")
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            yield from _walk(entry, [*above, here])
        else:
            yield entry


def _is_image(path: PurePath) -> bool:
    is_one = path.suffix.lower() in SUFFIXES and len(path.parts) >= 3 and path.parts[-3] in SPLITS
    return is_one and not is_hidden(path)


def _classes(source: Path, images: list[PurePath], classes: int) -> list[str]:
    if not images:
        raise ConfigError(f"{source} holds no images in class folders: {LAYOUT}.")
    tops = sorted({str(PurePosixPath(*path.parts[:-3])) for path in images})
    if len(tops) > 1:
        raise ConfigError(f"{source} holds {len(tops)} sets of images, {tops[0]} and {tops[1]}: name one of them.")
    train, test = ({path.parts[-2] for path in images if path.parts[-3] == split} for split in SPLITS)
    if train != test:
        odd = sorted(train ^ test)
        raise ConfigError(f"{source}: class {odd[0]!r} is in train or test only ({LAYOUT}).")
    if len(train) != classes:
        raise ConfigError(f"{source} has {len(train)} classes, expected {classes}: {', '.join(sorted(train)[:12])}.")
    return sorted(train)


def _decode(source: Path, path: PurePath, read_bytes: Callable[[PurePath], bytes], size: int) -> np.ndarray:
    try:
        return np.asarray(decode(read_bytes(path), (size, size)))
    except (OSError, RuntimeError, *BROKEN, BadImage) as error:
        raise ConfigError(f"{source}: the image {str(path)!r} cannot be read: {error}.") from None
