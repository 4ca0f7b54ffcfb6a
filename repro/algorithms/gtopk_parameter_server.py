"""gTop-k through one server, rank 0: every rank pushes its k largest, and gets back the true k largest of their sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.algorithms.parameter_server import through_server
from repro.collective import Collective
from repro.costs import PAIR_BYTES, Cost
from repro.feedback import ErrorFeedback
from repro.schedule import entries
from repro.sparse import Sparse, add_sum, outside, pack, select, to_dense, unpack


def cost(size: int, parameters: int, k: int) -> Cost:
    """The server: 8 k (P-1) bytes in 2 (P-1) rounds."""
    return Cost(PAIR_BYTES * k * (size - 1), 2 * (size - 1))


class Algorithm:
    density = 0.001

    def __init__(self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact"):
        self.memory = ErrorFeedback(parameters, device, selector)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        k = entries(self.density, gradient.numel())
        local = self.memory.accumulate_and_select(gradient, k)

        def largest(pushed: list[Tensor]) -> Tensor:
            parts = [unpack(wire, local.value.dtype) for wire in pushed]
            return pack(select(add_sum(parts, torch.zeros_like(self.memory.residual)), k), k)

        total = unpack(through_server(pack(local, k), largest, collective), local.value.dtype)
        self.memory.put_back(outside(local, total))  # whole, so nothing is lost
        return to_dense(Sparse(total.index, total.value / collective.size), out=gradient)

    def state_dict(self) -> dict[str, Any]:
        return self.memory.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
