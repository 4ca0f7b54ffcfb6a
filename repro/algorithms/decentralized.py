"""D-PSGD (Lian et al., NeurIPS 2017): each rank averages its weights with its peers of the step, not with all.

Its Alg. 1 mixes the weights before it subtracts the gradient, and so does BAGUA's code, beside backward; here mixing
comes after the step. The exchange itself is BAGUA's primitive D_FP_S (arXiv:2107.01499, section 3).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_reduce
from repro.comm.primitives import Topology, mix_with_peers


class Algorithm(algorithms.Algorithm):
    compresses = False
    mixes = True

    def __init__(self, parameters: int, device: torch.device | str = "cpu", topology: Topology = "ring"):
        self.topology, self.steps = topology, 0

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        return gradient

    def mix(self, parameters: Tensor, collective: Collective) -> None:
        parameters.copy_(mix_with_peers(parameters, collective, self.topology, self.steps))
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]

    @staticmethod
    def cost(size: int, parameters: int, k: int, topology: Topology = "ring") -> Cost:
        if topology == "all":
            return all_reduce(size, parameters)
        neighbours = min(size - 1, 2 if topology == "ring" else 1)
        return Cost(4 * parameters * neighbours, neighbours)
