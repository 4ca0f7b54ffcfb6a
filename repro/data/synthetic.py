"""Generated images of any shape: a coarse pattern per class under noise. Learnable, so a loss falls."""

from pathlib import Path
from typing import Any

import numpy as np

from repro.config import ConfigError, Data
from repro.data import Dataset

HOW = "is generated: data=synthetic"
CELLS = 4  # a pattern is a grid of so many squares a side, coarse enough to survive any network's poolings


def load(data: Data, seed: int, on_bad_image: str) -> Dataset:
    """The same images for every seed of a run, which shuffles them as it would real ones."""
    from repro.images.memory import train_and_test

    options = dict(data.options)
    counts, noise = [options.pop("train_images"), options.pop("test_images")], options.pop("noise")
    if min(counts) < 1 or noise < 0:
        raise ConfigError(
            f"data.train_images={counts[0]} data.test_images={counts[1]} data.noise={noise}: at least one "
            "image each and no negative noise, such as data.train_images=1024 data.test_images=256."
        )
    generator = np.random.Generator(np.random.PCG64(0))
    patterns = generator.integers(64, 192, (data.classes, CELLS, CELLS, 3))
    train, test = (_images(count, patterns, data.image_size, noise, generator) for count in counts)
    return Dataset(
        name="synthetic",
        description=f"synthetic ({data.classes} classes, {data.image_size}x{data.image_size})",
        classes=data.classes,
        image_size=data.image_size,
        seed=seed,
        **train_and_test(train, test, **options),
    )


def _images(
    count: int, patterns: np.ndarray, size: int, noise: float, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [count, size, size, 3] and their classes [count], which take turns."""
    labels = np.arange(count) % len(patterns)
    cell = np.arange(size) * CELLS // size
    images = np.empty((count, size, size, 3), np.uint8)
    for i, label in enumerate(labels):  # one by one: floats of all images at once may not fit into memory
        pattern = patterns[label][cell][:, cell]
        noisy = pattern + noise * generator.standard_normal((size, size, 3), dtype=np.float32)
        images[i] = noisy.clip(0, 255)
    return images, labels


def status(root: Path) -> dict[str, Any]:
    return {"state": "ready", "path": None, "size": 0, "how": HOW}


def prepare(source: str | Path | None, root: Path) -> Path:
    raise ConfigError(f"Nothing to prepare: synthetic {HOW}.")
