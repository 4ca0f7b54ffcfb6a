"""Generates images of any shape: a coarse pattern per class under noise, which a network can learn."""

from pathlib import Path
from typing import Any

import numpy as np

from repro.config.parts import Data
from repro.config.schema import ConfigError
from repro.data import Content, Dataset

HOW = "is generated: data=synthetic"
CELLS = 4  # a pattern is a grid of so many squares a side, coarse enough to survive any network's poolings


def training_samples(data: Data) -> int:
    return int(data.options["train_images"])


def test_images(data: Data) -> int:
    return int(data.options["test_images"])


def in_memory(data: Data) -> int:
    return 3 * data.image_size**2 * int(data.options["train_images"] + data.options["test_images"])


def load(data: Data, seed: int, on_bad_image: str) -> Dataset:
    """Generates the same images for every seed of a run, which shuffles them as it would real ones."""
    from repro.data._images.memory import train_and_test

    options = dict(data.options)
    counts, noise = [options.pop("train_images"), options.pop("test_images")], options.pop("noise")
    generator = np.random.Generator(np.random.PCG64(0))
    patterns = generator.integers(64, 192, (data.classes, CELLS, CELLS, 3))
    train, test = (_images(count, patterns, data.image_size, noise, generator) for count in counts)
    return Dataset(
        name="synthetic",
        description=f"synthetic ({data.classes} classes, {data.image_size}x{data.image_size})",
        fingerprint="",
        classes=data.classes,
        image_size=data.image_size,
        seed=seed,
        **train_and_test(train, test, **options),
    )


def _images(
    count: int, patterns: np.ndarray, size: int, noise: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Returns images uint8 [count, size, size, 3] and their classes [count], which take turns."""
    labels = np.arange(count) % len(patterns)
    cell = np.arange(size) * CELLS // size
    images = np.empty((count, size, size, 3), np.uint8)
    for i, label in enumerate(labels):  # one by one: floats of all images at once may not fit into memory
        pattern = patterns[label][cell][:, cell]
        noisy = pattern + noise * generator.standard_normal((size, size, 3), dtype=np.float32)
        images[i] = noisy.clip(0, 255)
    return images, labels


def status(root: Path) -> dict[str, Any]:
    return {"state": "ready", "path": None, "size": 0, "kind": "generated", "how": HOW}


def content(root: Path) -> Content | None:
    return None


def prepare(source: str | Path | None, root: Path) -> Path:
    raise ConfigError(f"Nothing to prepare: synthetic {HOW}.")
