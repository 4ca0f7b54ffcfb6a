"""QSGD (Alistarh et al., NeurIPS 2017): rounds to levels of each bucket's norm at random, without bias."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, scatter_reduce
from repro.comm.primitives import compressed_scatter_reduce
from repro.compression.codecs import QSGD
from repro.rng import derive


class Algorithm(algorithms.Algorithm):
    """Quantises on the way to the owners that sum and back, as in C_LP_S; the paper gathers all ranks' levels."""

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        bits: int = 8,
        bucket: int = 512,
        norm: str = "max",
        seed: int = 0,
    ):
        sized_only = torch.device(device).type == "meta"  # a meta tensor has no values, so nothing is drawn
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

    @staticmethod
    def cost(
        size: int, parameters: int, k: int, bits: int = 8, bucket: int = 512, norm: str = "max", seed: int = 0
    ) -> Cost:
        return scatter_reduce(size, QSGD(torch.Generator(), bits, bucket, norm).nbytes(-(-parameters // size)))
