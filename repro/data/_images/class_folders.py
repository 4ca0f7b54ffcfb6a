"""Small images from a folder or a zip file laid out as {train,test}/<class>/<image>, at any depth."""

import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image

from repro.config import ConfigError
from repro.images.progress import track

SUFFIXES = {".jpg", ".jpeg", ".png"}
SPLITS = ("train", "test")
LAYOUT = "expected {train,test}/<class>/<image>.jpg or .png"


def read(source: Path, classes: int, size: int) -> dict[str, np.ndarray]:
    """Arrays {train,test}_images uint8 [N, size, size, 3], {train,test}_labels uint8 [N], classes (names).

    In the order of split, class and file name, whatever the source. Files that are no images by their name
    are left alone. Raises ConfigError for any image that is not whole, and for another number of classes.
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
    return arrays | {"classes": np.array(names)}


@contextmanager
def _opened(source: Path) -> Iterator[tuple[list[PurePosixPath], Callable[[PurePosixPath], bytes]]]:
    """The paths of all files in the source, relative to it, and how to read one."""
    if source.is_dir():
        walk = os.walk(source, followlinks=True)
        found = [Path(folder, name).relative_to(source) for folder, _, files in walk for name in files]
        yield [PurePosixPath(path) for path in found], lambda path: (source / path).read_bytes()
        return
    try:
        archive = zipfile.ZipFile(source)
    except (OSError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{source} cannot be read as a zip file: {error}. Is it complete?") from None
    with archive:
        yield (
            [PurePosixPath(i.filename) for i in archive.infolist() if not i.is_dir()],
            lambda p: archive.read(str(p)),
        )


def _is_image(path: PurePosixPath) -> bool:
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in path.parts)
    return path.suffix.lower() in SUFFIXES and len(path.parts) >= 3 and path.parts[-3] in SPLITS and not hidden


def _classes(source: Path, images: list[PurePosixPath], classes: int) -> list[str]:
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


def _decode(source: Path, path: PurePosixPath, read_bytes: Callable[[PurePosixPath], bytes], size: int) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(read_bytes(path))) as image:
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(f"{source}: the image {str(path)!r} cannot be read: {error}.") from None
    if pixels.shape != (size, size, 3):
        height, width, _ = pixels.shape
        raise ConfigError(f"{source}: the image {str(path)!r} has {width}x{height} pixels, not {size}x{size}.")
    return pixels
