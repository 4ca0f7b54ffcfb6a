"""Deep Gradient Compression (Lin et al., ICLR 2018, Alg. 4): Top-k that feeds back velocities instead of gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import PAIR_BYTES, Cost, all_gather
from repro.feedback import ErrorFeedback
from repro.schedule import entries
from repro.sparse import add_packed, pack


def cost(size: int, parameters: int, k: int, momentum: float = 0.9) -> Cost:
    """8 k (P-1) bytes in log2 P rounds."""
    return all_gather(size, PAIR_BYTES * k)


class Algorithm:
    """`momentum` is applied here, before the exchange; the trainer's own must be 0.

    The threshold comes from a sample (selector=sampled); the density's warm-up is the run's `density_warmup`. The
    paper's gradient clipping, for recurrent networks, is left out.
    """

    density = 0.001

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        selector: str = "sampled",
        momentum: float = 0.9,
    ):
        self.memory = ErrorFeedback(parameters, device, selector)
        self.momentum, self.velocity = momentum, torch.zeros(parameters, device=device)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        k = entries(self.density, gradient.numel())
        self.velocity.mul_(self.momentum).add_(gradient)  # momentum correction: u = m u + g, then v = v + u
        local = self.memory.accumulate_and_select(self.velocity, k)
        self.velocity[local.index.long()] = 0  # momentum factor masking: what was sent is stale in u too
        gathered = collective.all_gather(pack(local, k))
        return add_packed(gathered, local.value.dtype, gradient.zero_()).div_(collective.size)

    def state_dict(self) -> dict[str, Any]:
        return {**self.memory.state_dict(), "velocity": self.velocity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
        self.velocity.copy_(state["velocity"])
