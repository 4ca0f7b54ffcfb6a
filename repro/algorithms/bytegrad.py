"""ByteGrad (BAGUA, arXiv:2107.01499, table 1): 8-bit min-max to the owners that sum, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import Cost, scatter_reduce
from repro.primitives import compressed_scatter_reduce
from repro.quantize import MinMax


def cost(size: int, parameters: int, k: int, bucket: int = 0) -> Cost:
    """2 m (P-1)/P bytes in P - 1 + log2 P rounds."""
    return scatter_reduce(size, MinMax(bucket).nbytes(-(-parameters // size)))


class Algorithm:
    """`bucket`: entries that share a minimum and a maximum; 0 = all of an owner's m/P."""

    density = 1.0

    def __init__(self, parameters: int, device: torch.device | str = "cpu", bucket: int = 0):
        self.codec = MinMax(bucket)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        total = compressed_scatter_reduce(gradient, collective, self.codec)
        return gradient.copy_(total.div_(collective.size))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
