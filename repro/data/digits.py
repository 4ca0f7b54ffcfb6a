"""Loads scikit-learn's 1,797 scans of handwritten digits, 8x8, magnified to RGB; they come with the installation."""

from pathlib import Path
from typing import Any

import numpy as np

from repro.config.parts import Data
from repro.config.schema import ConfigError
from repro.data import Content, Dataset, _shards

IMAGES, TEST = 1797, 360
HOW = "comes with the installation: data=digits"


def training_samples(data: Data) -> int:
    return IMAGES - TEST


def test_images(data: Data) -> int:
    return TEST


def in_memory(data: Data) -> int:
    return 2 * 3 * data.image_size**2 * IMAGES  # twice: in their first order, and divided into two parts


def load(data: Data, seed: int, on_bad_image: str) -> Dataset:
    """Loads 1,437 images to train with and 360 to test, the same ones for every seed."""
    if data.classes != 10 or data.image_size % 8:
        raise ConfigError(
            f"data.classes={data.classes} data.image_size={data.image_size}: the digits have 10 classes "
            "and 8x8 pixels, which can be magnified to any multiple of 8, for example data.image_size=32."
        )
    from sklearn.datasets import load_digits

    from repro.data._images.memory import train_and_test

    scans = load_digits()
    factor = data.image_size // 8
    pixels = np.round(scans.images * (255 / 16)).astype(np.uint8)
    images = pixels.repeat(factor, axis=1).repeat(factor, axis=2)[..., None].repeat(3, axis=3)
    order = _shards.order(len(images), 0, 0)  # the scans come in runs of 0 to 9, so not every fifth one
    train, test = ((images[part], scans.target[part]) for part in (order[TEST:], order[:TEST]))
    return Dataset(
        name="digits",
        description="digits (scikit-learn, magnified)",
        fingerprint="",
        classes=10,
        image_size=data.image_size,
        seed=seed,
        **train_and_test(train, test, **data.options),
    )


def labels(data: Data, trained_on: Content) -> list[str]:
    return [str(digit) for digit in range(10)]


def status(root: Path) -> dict[str, Any]:
    images = (IMAGES - TEST, TEST)
    return {"state": "ready", "path": None, "size": 0, "kind": "scans", "classes": 10, "images": images, "how": HOW}


def content(root: Path) -> Content | None:
    return None


def prepare(source: str | Path | None, root: Path) -> Path:
    raise ConfigError(f"Nothing to prepare: digits {HOW}.")
