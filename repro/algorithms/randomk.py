"""Random-k with error feedback (Stich et al., NeurIPS 2018): the same k entries on all ranks, so no index travels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import Cost, all_reduce
from repro.rng import derive
from repro.schedule import entries


def cost(size: int, parameters: int, k: int, seed: int = 0) -> Cost:
    """8 k (P-1)/P bytes in 2 (P-1) rounds."""
    return all_reduce(size, k)


class Algorithm:
    density = 0.001

    def __init__(self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact", seed: int = 0):
        if selector != "exact":
            raise ValueError(f"selector={selector} has nothing to select here; leave algo.selector out")
        self.residual = torch.zeros(parameters, device=device)
        self.seed, self.steps = seed, 0

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        m = gradient.numel()
        generator = np.random.default_rng(derive(self.seed, "randomk", self.steps))
        chosen = generator.choice(m, min(entries(self.density, m), m), replace=False, shuffle=False)
        index = torch.from_numpy(np.sort(chosen)).to(gradient.device)  # sorted: its reads and writes go forward
        self.steps += 1
        value = self.residual.add_(gradient)[index]
        self.residual[index] = 0
        gradient.zero_()[index] = collective.all_reduce(value).div_(collective.size).to(gradient.dtype)
        return gradient

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual.copy_(state["residual"])
        self.steps = state["steps"]
