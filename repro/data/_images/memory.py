"""Images held in memory as bytes, shared by all ranks of a process."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from repro.config import ConfigError
from repro.images import augment


@dataclass(frozen=True)
class MemoryImages:
    """A data set's Images (see repro.data) from arrays."""

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
        for batch in batches:
            index = torch.from_numpy(batch)
            images = self.images[index]
            if draws is not None:
                images = augment.crop_and_flip(images, draws.of(index), self.pad)
            yield augment.normalise(images, self.mean, self.std), self.labels[index]


def train_and_test(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    pad: int,
    flip: bool,
    mean: Sequence[float],
    std: Sequence[float],
) -> dict[str, MemoryImages]:
    """A data set's two parts, each from (images, labels); the first is augmented. Raises ConfigError."""
    check_normalisation(mean, std)
    if not 0 <= pad <= train[0].shape[1]:
        raise ConfigError(f"data.pad={pad}: must be a number of pixels from 0 to {train[0].shape[1]}.")
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


def check_normalisation(mean: Sequence[float], std: Sequence[float]) -> None:
    """Raises ConfigError unless there is a mean and a positive standard deviation for red, green and blue."""
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise ConfigError(
            f"data.mean={list(mean)} data.std={list(std)}: three numbers each, all of std above 0, "
            "for example data.mean=[0.5,0.5,0.5] data.std=[0.25,0.25,0.25]."
        )
