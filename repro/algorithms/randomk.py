"""Random-k with error feedback (Stich et al., NeurIPS 2018): all ranks send the same k entries, so no index travels.

Two differences from that paper: its nodes draw each their own entries; and what waits there has been multiplied by the
learning rate of its time, where here it waits as a gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_reduce
from repro.comm.primitives import average_at
from repro.density import entries
from repro.rng import derive


class Algorithm(algorithms.Algorithm):
    density = 0.001
    residual: Tensor

    def __init__(self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact", seed: int = 0):
        if selector != "exact":
            raise ValueError(f"selector={selector} has nothing to select here; leave algo.selector out")
        self.residual = torch.zeros(parameters, dtype=torch.float32, device=device)
        self.seed, self.steps = seed, 0
        self.index = torch.empty(0, dtype=torch.int64, device=device)  # of the entries that all ranks sent last

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        m = gradient.numel()
        generator = np.random.default_rng(derive(self.seed, "randomk", self.steps))
        chosen = generator.choice(m, min(entries(self.density, m), m), replace=False, shuffle=False)
        self.index = torch.from_numpy(np.sort(chosen)).to(gradient.device)  # sorted: memory access in order
        self.steps += 1
        return average_at(self.index, self.residual.add_(gradient), collective, out=gradient)

    @property
    def chosen(self) -> Tensor:
        return self.index

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual.copy_(state["residual"])
        self.steps = state["steps"]

    @staticmethod
    def cost(size: int, parameters: int, k: int, seed: int = 0) -> Cost:
        return all_reduce(size, k)
