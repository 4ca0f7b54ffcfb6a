"""Augments a whole batch at once: pad, crop, mirror, normalise; 0.5 ms for 32 images of 32x32."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


class Draws(NamedTuple):
    """Says how each sample is augmented in one epoch: the crop's corner in the padded image; mirrored or not."""

    top: Tensor  # int64 [N], 0 to 2 * pad
    left: Tensor  # int64 [N], 0 to 2 * pad
    flip: Tensor  # bool [N]

    def of(self, index: Tensor) -> "Draws":
        return Draws(self.top[index], self.left[index], self.flip[index])


def draw(samples: int, pad: int, flip: bool, seed: int) -> Draws:
    """Draws for all samples of an epoch at once, so that a sample's draws depend on neither rank nor batch."""
    generator = np.random.Generator(np.random.PCG64(seed))
    top, left = torch.from_numpy(generator.integers(0, 2 * pad + 1, (2, samples)))
    mirrored = generator.integers(0, 1 + flip, samples) == 1
    return Draws(top, left, torch.from_numpy(mirrored))


def crop_and_flip(images: Tensor, draws: Draws, pad: int) -> Tensor:
    """Crops uint8 [B, H, W, 3] to the same shape out of each image with `pad` black pixels around it; mirrors some."""
    count, height, width, _ = images.shape
    padded = F.pad(images, (0, 0, pad, pad, pad, pad))
    column = torch.arange(width).expand(count, width)
    column = torch.where(draws.flip[:, None], width - 1 - column, column) + draws.left[:, None]
    row = torch.arange(height) + draws.top[:, None]
    corner = torch.arange(count)[:, None] * (height + 2 * pad)
    pixel = (corner + row)[:, :, None] * (width + 2 * pad) + column[:, None, :]
    return padded.view(-1, 3).index_select(0, pixel.view(-1)).view(images.shape)


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Turns uint8 [B, H, W, 3] into (x / 255 - mean) / std, float32 [B, 3, H, W] in channels_last layout.

    That layout makes a convolutional network's step 15 to 20 % faster on a CPU, with weights in the usual one.
    """
    count, height, width, _ = images.shape
    scale = (1 / (255 * std)).repeat(width)  # whole rows: an inner dimension of 3 would be four times slower
    offset = (-mean / std).repeat(width)
    rows = images.reshape(count, height, width * 3).float().mul_(scale).add_(offset)
    return rows.view(count, height, width, 3).permute(0, 3, 1, 2)
