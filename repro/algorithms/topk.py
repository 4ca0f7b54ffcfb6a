"""Top-k S-SGD (Aji and Heafield, EMNLP 2017): all-gathers every rank's k largest and sums them."""

from __future__ import annotations

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_gather, message_bytes
from repro.compression.error_feedback import ErrorFeedback, rounded
from repro.compression.sparse import Sparse
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
        return average_of_all(local, k, self.wire, collective, out=gradient)

    @staticmethod
    def cost(size: int, parameters: int, k: int, wire: str = "pairs") -> Cost:
        return all_gather(size, message_bytes(wire, k, parameters))


def average_of_all(local: Sparse, k: int, wire: Wire, collective: Collective, out: Tensor) -> Tensor:
    """Writes into out [m] the average of what all ranks send here: up to k pairs each."""
    total = wire.sum(collective.all_gather(wire.pack(local, k)[0]), k, out)
    wire.put_back_rounding()
    mean = total.div_(collective.size)
    return out if mean is out else rounded(mean, out, wire.memory.residual)
