"""Makes a network's input from image files that are in no data set, as evaluation makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from repro.config.schema import ConfigError
from repro.data._images import augment
from repro.data._images.crops import center_crop
from repro.data._images.decode import BadImage, decode, read_file


@dataclass(frozen=True)
class Preprocessing:
    """Says how: resize the shorter side (bilinear), crop the middle, (x / 255 - mean) / std, in [3, H, W]."""

    image_size: int
    shorter_side: int  # image_size where evaluation takes images as they are
    mean: list[float]  # of pixels in 0 to 1
    std: list[float]
    channels: str = "RGB"

    def read(self, files: Sequence[Path]) -> Tensor:
        """Returns float32 images [files, 3, image_size, image_size]. Raises ConfigError for a file that is none."""
        images = torch.from_numpy(np.stack([self._pixels(file) for file in files]))
        return augment.normalise(images, torch.tensor(self.mean), torch.tensor(self.std))

    def _pixels(self, file: Path) -> np.ndarray:
        try:
            return np.array(center_crop(decode(read_file(file)), self.image_size, self.shorter_side))
        except BadImage as error:
            raise ConfigError(f"The image {file} cannot be read: {error}.") from None
        except OSError as error:
            raise ConfigError(f"The image {file} cannot be read: {error.strerror or error}.") from None
