"""Local SGD (Stich, ICLR 2019): every rank steps on its own; every H steps all continue from their average."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import Cost, all_reduce


def cost(size: int, parameters: int, k: int, period: int = 8) -> Cost:
    """8 (P-1)/P m bytes in 2 (P-1) rounds, every H steps."""
    return all_reduce(size, parameters)


class Algorithm:
    """`period` is H. Momentum stays each rank's own and is not averaged."""

    density = 1.0

    def __init__(self, parameters: int, device: torch.device | str = "cpu", period: int = 8):
        if period < 1:
            raise ValueError(f"algo.period={period}: must be at least 1")
        self.period, self.steps = period, 0

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        return gradient

    def mix(self, parameters: Tensor, collective: Collective) -> None:
        self.steps += 1
        if self.steps % self.period == 0:
            collective.all_reduce(parameters).div_(collective.size)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
