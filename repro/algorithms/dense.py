"""Dense S-SGD: the baseline. Every gradient entry crosses the network in a ring all-reduce."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import Cost, all_reduce


def cost(size: int, parameters: int, k: int) -> Cost:
    """8 m (P-1)/P bytes in 2 (P-1) rounds."""
    return all_reduce(size, parameters)


class Algorithm:
    density = 1.0

    def __init__(self, parameters: int, device: torch.device | str = "cpu"):
        pass

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        return collective.all_reduce(gradient).div_(collective.size)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
