"""Holds images in memory as bytes, shared by all ranks of a process."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from repro.data._images import augment

TOGETHER = 1 << 19  # values of images that are read and augmented at once, in 2 MiB: to begin an operator takes time


@dataclass(frozen=True)
class MemoryImages:
    """Holds a data set's Samples (see repro.data) in arrays."""

    images: Tensor  # uint8 [N, H, W, 3]
    labels: Tensor  # int64 [N]
    mean: Tensor  # [3], of pixels in 0 to 1
    std: Tensor  # [3]
    pad: int = 0
    flip: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, batches: Iterable[np.ndarray], seed: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        draws = None
        if seed is not None and (self.pad or self.flip):
            draws = augment.draw(len(self), self.pad, self.flip, seed)
        batches, taken = iter(batches), 0  # no more at once than were taken before: few may be
        for first in batches:
            most = min(taken, TOGETHER // max(1, len(first) * self.images[0].numel()))
            some = [first, *itertools.islice(batches, max(0, most - 1))]
            taken += len(some)
            index = torch.from_numpy(np.concatenate(some))
            images = self.images[index]
            if draws is not None:
                images = augment.crop_and_flip(images, draws.of(index), self.pad)
            sizes = [len(batch) for batch in some]
            inputs = augment.normalise(images, self.mean, self.std).split(sizes)
            yield from zip(inputs, self.labels[index].split(sizes), strict=True)


def train_and_test(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    pad: int,
    flip: bool,
    mean: Sequence[float],
    std: Sequence[float],
) -> dict[str, MemoryImages]:
    """Returns a data set's two parts, each made from (images, labels); the first is augmented."""
    tensors = {
        name: (
            torch.from_numpy(images),
            torch.from_numpy(labels).long(),
            torch.tensor(mean),
            torch.tensor(std),
        )
        for name, (images, labels) in {"train": train, "test": test}.items()
    }
    return {"train": MemoryImages(*tensors["train"], pad, flip), "test": MemoryImages(*tensors["test"])}
