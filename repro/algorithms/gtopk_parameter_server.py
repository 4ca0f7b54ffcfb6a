"""gTop-k through one server, rank 0: every rank pushes its k largest, and gets back the true k largest of their sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.algorithms.parameter_server import through_server
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, message_bytes
from repro.compression.error_feedback import ErrorFeedback
from repro.compression.sparse import add_sum, outside, select
from repro.compression.wire import Wire
from repro.density import entries


class Algorithm(algorithms.Algorithm):
    density = 0.001
    sends_pairs = True
    memory: ErrorFeedback
    wire: Wire

    def __init__(
        self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact", wire: str = "pairs"
    ):
        self.memory = ErrorFeedback(parameters, device, selector)
        self.wire = Wire(wire, self.memory)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        k = entries(self.density, gradient.numel())
        local = self.memory.accumulate_and_select(gradient, k)

        def largest(pushed: list[Tensor]) -> Tensor:
            parts = [self.wire.unpack(message, k) for message in pushed]
            return self.wire.pack(select(add_sum(parts, torch.zeros_like(self.memory.residual)), k), k)[0]

        answer = through_server(self.wire.pack(local, k)[0], largest, collective)
        total = self.wire.unpack(answer, k)
        self.memory.put_back(outside(local, total))  # entries return whole, so nothing is lost
        self.wire.put_back_rounding(total)
        return self.memory.average(total, collective.size, out=gradient)

    @staticmethod
    def cost(size: int, parameters: int, k: int, wire: str = "pairs") -> Cost:
        return Cost(message_bytes(wire, k, parameters) * (size - 1), 2 * (size - 1))

    @staticmethod
    def path(cost: Cost, size: int, **options: Any) -> Cost:
        """Counts what the server gets before what it sends, which is as much."""
        return Cost(2 * cost.bytes, cost.rounds)
