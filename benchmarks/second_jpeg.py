"""Measure what a second JPEG encoding of CIFAR-10's test images takes from a network that was trained on the first.

    python benchmarks/second_jpeg.py RUN_FOLDER --data FOLDER

`cifar10 (JPEG folder)` was encoded at quality 75, with colour at half the resolution. What that took cannot be
measured without the originals; what it takes once more can. On the same grid of 8 x 8 pixels a second encoding changes
next to nothing, so the images are moved first, by no more than training moves them.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from repro import data, screen
from repro.config.compose import from_yaml
from repro.data._images import augment
from repro.data._images.memory import MemoryImages
from repro.train import classify, evaluation

QUALITY = 75  # the images' quantisation tables are libjpeg's of 75
MOVES = (0, 2, 3, 4)  # pixels to the right and down


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, default=Path("data"))
    arguments = parser.parse_args()
    network = classify.load(str(arguments.run), arguments.run.parent)
    config = from_yaml(arguments.run / "config.yaml")
    options = dataclasses.replace(config.data, root=str(arguments.data))
    test = data.load(options, config.seed, config.on_bad_image).test
    if not isinstance(test, MemoryImages):
        raise SystemExit(f"{arguments.run} is of data={config.data.name}: name the folder of a run of data=cifar10")
    rows = []
    for pixels in MOVES:
        images = moved(test.images, pixels)
        once = accuracy(network, images, test.labels)
        twice = accuracy(network, encoded(images), test.labels)
        rows.append({"moved (pixels)": pixels, "as they are (%)": 100 * once, "encoded again (%)": 100 * twice})
    screen.show(rows)


def moved(images: Tensor, pixels: int) -> Tensor:
    """Returns uint8 [N, H, W, 3] images moved to the right and down, black where nothing moves in."""
    height, width = images.shape[1:3]
    return torch.nn.functional.pad(images, (0, 0, pixels, 0, pixels, 0))[:, :height, :width]


def encoded(images: Tensor) -> Tensor:
    """Returns uint8 [N, H, W, 3] images encoded, with colour at half the resolution, and decoded."""
    decoded = np.empty(images.shape, np.uint8)
    for number, image in enumerate(images.numpy()):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=QUALITY, subsampling="4:2:0")
        decoded[number] = np.asarray(Image.open(file))
    return torch.from_numpy(decoded)


@torch.no_grad()
def accuracy(network: classify.Classifier, images: Tensor, labels: Tensor) -> float:
    mean, std = torch.tensor(network.preprocessing.mean), torch.tensor(network.preprocessing.std)
    right = 0
    for some, theirs in zip(images.split(evaluation.BATCH), labels.split(evaluation.BATCH), strict=True):
        right += int((network.logits(augment.normalise(some, mean, std)).argmax(1) == theirs).sum())
    return right / len(labels)


if __name__ == "__main__":
    main()
