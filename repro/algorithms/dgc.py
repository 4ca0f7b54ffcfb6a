"""Deep Gradient Compression (Lin et al., ICLR 2018, Alg. 4): Top-k that feeds back velocities instead of gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.algorithms.topk import average_of_all
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_gather, message_bytes
from repro.compression.error_feedback import ErrorFeedback
from repro.compression.wire import Wire
from repro.density import entries


class Algorithm(algorithms.Algorithm):
    """Applies `momentum` here, before the exchange; the trainer's own momentum must be 0.

    The threshold comes from a sample (selector=sampled); the run's `density_warmup` warms the density up. The paper's
    gradient clipping, for recurrent networks, is left out.

    The authors' code has k and a threshold for each layer, lowers a threshold that lets fewer than 0.8 k through, and
    sums vectors (biases, BatchNorm) whole. Here k is that of the whole gradient, vectors included, and a step whose
    sample misleads sends fewer entries, in messages as long as those of k.
    """

    density = 0.001
    sends_pairs = True
    memory: ErrorFeedback
    wire: Wire

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        selector: str = "sampled",
        wire: str = "pairs",
        momentum: float = 0.9,
    ):
        self.memory = ErrorFeedback(parameters, device, selector)
        self.wire = Wire(wire, self.memory)
        self.momentum, self.velocity = momentum, torch.zeros(parameters, dtype=torch.float32, device=device)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        k = entries(self.density, gradient.numel())
        self.velocity.mul_(self.momentum).add_(gradient)  # momentum correction: u = m u + g, then v = v + u
        local = self.memory.accumulate_and_select(self.velocity, k)
        self.velocity[local.index.long()] = 0  # momentum factor masking: sent entries are stale in u too
        return average_of_all(local, k, self.wire, collective, out=gradient)

    def state_dict(self) -> dict[str, Any]:
        return {**self.memory.state_dict(), "velocity": self.velocity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
        self.velocity.copy_(state["velocity"])

    @staticmethod
    def cost(size: int, parameters: int, k: int, wire: str = "pairs", momentum: float = 0.9) -> Cost:
        return all_gather(size, message_bytes(wire, k, parameters))
