"""gTop-k by all-gather: selects k of the gathered k x P entries (the paper's first experiment: most are not needed)."""

from __future__ import annotations

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_gather, message_bytes
from repro.compression.error_feedback import ErrorFeedback
from repro.compression.sparse import outside, select
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
        gathered = collective.all_gather(self.wire.pack(local, k)[0])
        total = select(self.wire.sum(gathered, k, gradient), k)
        self.memory.put_back(outside(local, total))  # entries return whole, so nothing is lost
        self.wire.put_back_rounding(total)
        return self.memory.average(total, collective.size, out=gradient)

    @staticmethod
    def cost(size: int, parameters: int, k: int, wire: str = "pairs") -> Cost:
        return all_gather(size, message_bytes(wire, k, parameters))
