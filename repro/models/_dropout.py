"""Dropout that draws from the rank's own generator, so that ranks may be threads of one process."""

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """nn.Dropout with a generator of its own: zeroes with `probability`, scales the rest to keep the mean.

    The generator must live on the device of the activations. It is the rank's state, not the network's, so it
    is not in `state_dict`; whoever made it saves it.
    """

    def __init__(self, probability: float, generator: torch.Generator):
        super().__init__()
        self.probability, self.generator = probability, generator

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return x
        keep = 1 - self.probability
        return x * torch.empty_like(x).bernoulli_(keep, generator=self.generator).div_(keep)

    def extra_repr(self) -> str:
        return f"probability={self.probability}"
