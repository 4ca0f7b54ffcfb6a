"""DCD-PSGD (Tang et al., NeurIPS 2018, Alg. 1): neighbours on a ring exchange the quantised change of their weights.

This is BAGUA's version (D_LP_S with 8-bit min-max quantisation, arXiv:2107.01499, section 4), which rounds to the
nearest level, where the paper's quantisation is unbiased: steps below half a level are lost.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost
from repro.comm.primitives import exchange_with_peers
from repro.compression.codecs import MinMax


class Algorithm(algorithms.Algorithm):
    """Keeps each rank's weights, in their precision, equal to the sum of what it has sent, which its neighbours know.

    `known` [3, m] holds its own weights after the last step, then those of its two neighbours.
    """

    mixes = True

    def __init__(self, parameters: int, device: torch.device | str = "cpu", bucket: int = 512):
        if bucket < 1:
            raise ValueError(f"algo.bucket={bucket}: must be at least 1")
        self.codec = MinMax(bucket)
        self.known = torch.zeros(3, parameters, dtype=torch.float32, device=device)

    def begin(self, parameters: Tensor) -> None:
        self.known[:] = parameters

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        return gradient

    def mix(self, parameters: Tensor, collective: Collective) -> None:
        if collective.size == 1:
            return
        weights = self.known[: min(collective.size, 3)]  # two ranks have one neighbour each
        # this rank's SGD step, plus the difference from its weights to the mean with its neighbours'
        began = weights[0].to(parameters.dtype).to(weights.dtype)  # rounding is no step that it took
        change = parameters - began + (weights.mean(0) - weights[0])
        wire = self.codec.encode(change[None])[0]
        wires = torch.stack([wire, *exchange_with_peers(wire, collective, "ring", 0, 0)])
        weights += self.codec.decode(wires, change.numel())
        parameters.copy_(weights[0])

    def state_dict(self) -> dict[str, Any]:
        return {"known": self.known}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.known.copy_(state["known"])

    @staticmethod
    def cost(size: int, parameters: int, k: int, bucket: int = 512) -> Cost:
        neighbours = min(size - 1, 2)
        return Cost(neighbours * MinMax(bucket).nbytes(parameters), neighbours)
