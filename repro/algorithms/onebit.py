"""1-bit SGD (Seide et al., Interspeech 2014) with errors kept on worker and server (DoubleSqueeze, ICML 2019)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import Cost, scatter_reduce
from repro.feedback import CompressionErrors
from repro.primitives import compressed_scatter_reduce
from repro.quantize import Sign


def cost(size: int, parameters: int, k: int, bucket: int = 1024) -> Cost:
    """m (P-1)/P (1/4 + 8/bucket) bytes in P - 1 + log2 P rounds."""
    return scatter_reduce(size, Sign(bucket).nbytes(-(-parameters // size)))


class Algorithm:
    """A sign an entry and one scale for each `bucket` of them, the mean magnitude; 0 = all of an owner's m/P."""

    density = 1.0

    def __init__(self, parameters: int, device: torch.device | str = "cpu", bucket: int = 1024):
        self.codec, self.errors = Sign(bucket), CompressionErrors(parameters, device)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        errors = self.errors.of(collective.size)
        total = compressed_scatter_reduce(gradient, collective, self.codec, *errors)
        return gradient.copy_(total.div_(collective.size))

    def state_dict(self) -> dict[str, Any]:
        return self.errors.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.errors.load_state_dict(state)
