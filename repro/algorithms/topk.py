"""Top-k S-SGD (Lin et al., ICLR 2018; the paper's Alg. 1): all-gather every rank's k largest, sum them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import PAIR_BYTES, Cost, all_gather
from repro.feedback import ErrorFeedback
from repro.schedule import entries
from repro.sparse import add_packed, pack


def cost(size: int, parameters: int, k: int) -> Cost:
    """8 k (P-1) bytes in log2 P rounds."""
    return all_gather(size, PAIR_BYTES * k)


class Algorithm:
    density = 0.001

    def __init__(self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact"):
        self.memory = ErrorFeedback(parameters, device, selector)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        k = entries(self.density, gradient.numel())
        local = self.memory.accumulate_and_select(gradient, k)
        gathered = collective.all_gather(pack(local, k))
        return add_packed(gathered, local.value.dtype, gradient.zero_()).div_(collective.size)

    def state_dict(self) -> dict[str, Any]:
        return self.memory.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
