"""Local SGD (Stich, ICLR 2019): ranks take steps without messages; every H steps all continue from their average."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_reduce
from repro.comm.primitives import mean


class Algorithm(algorithms.Algorithm):
    """Averages weights every `period` (H) steps; each rank keeps its own momentum, which is not averaged."""

    compresses = False
    mixes = True

    def __init__(self, parameters: int, device: torch.device | str = "cpu", period: int = 8):
        if period < 1:
            raise ValueError(f"algo.period={period}: must be at least 1")
        self.period, self.steps = period, 0

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        return gradient

    def mix(self, parameters: Tensor, collective: Collective) -> None:
        self.steps += 1
        if self.steps % self.period == 0:
            mean(parameters, collective)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]

    @staticmethod
    def cost(size: int, parameters: int, k: int, period: int = 8) -> Cost:
        return all_reduce(size, parameters)
