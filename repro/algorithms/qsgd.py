"""QSGD (Alistarh et al., NeurIPS 2017): levels of each bucket's norm, rounded at random so that the mean is kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import Cost, scatter_reduce
from repro.primitives import compressed_scatter_reduce
from repro.quantize import QSGD
from repro.rng import derive


def cost(
    size: int, parameters: int, k: int, bits: int = 8, bucket: int = 512, norm: str = "max", seed: int = 0
) -> Cost:
    """2 m (P-1)/P (bits/8 + 4/bucket) bytes in P - 1 + log2 P rounds."""
    return scatter_reduce(size, QSGD(torch.Generator(), bits, bucket, norm).nbytes(-(-parameters // size)))


class Algorithm:
    """Quantised both to the owners that sum, and back, as C_LP_S does; the paper gathers all ranks' levels."""

    density = 1.0

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        bits: int = 8,
        bucket: int = 512,
        norm: str = "max",
        seed: int = 0,
    ):
        sized_only = torch.device(device).type == "meta"  # where there are no numbers, none are drawn
        self.generator = torch.Generator("cpu" if sized_only else device)
        self.codec = QSGD(self.generator, bits, bucket, norm)
        self.seed, self.steps = seed, 0

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        # a rank's noise is a function of (seed, rank, step), so nothing but the step needs saving
        self.generator.manual_seed(derive(self.seed, "qsgd", collective.rank, self.steps))
        self.steps += 1
        total = compressed_scatter_reduce(gradient, collective, self.codec)
        return gradient.copy_(total.div_(collective.size))

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
