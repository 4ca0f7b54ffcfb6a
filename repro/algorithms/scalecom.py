"""ScaleCom (Chen et al., NeurIPS 2020): all ranks send the entries that one of them, the leader, has selected."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_reduce, in_turn, log2
from repro.comm.primitives import average_at
from repro.compression.error_feedback import ErrorFeedback
from repro.compression.sparse import PADDING
from repro.density import entries


class Algorithm(algorithms.Algorithm):
    """Lets each rank lead in turn (CLT-k): it broadcasts k indices, whose entries an all-reduce then sums.

    With `beta` below 1 the residual is the paper's low-pass filter, for large batches: it takes in only so much of what
    a step leaves, r = r + beta (g - sent).
    """

    density = 0.001
    memory: ErrorFeedback

    def __init__(self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact", beta: float = 1.0):
        self.memory = ErrorFeedback(parameters, device, selector)
        self.beta, self.steps = beta, 0

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        m, residual = gradient.numel(), self.memory.residual
        k, leader = entries(self.density, m), self.steps % collective.size
        self.steps += 1
        old = residual.clone() if self.beta < 1 else None
        residual.add_(gradient)
        message = torch.full((k,), PADDING, dtype=torch.int32, device=gradient.device)
        if collective.rank == leader:
            # No selection has zeros, but where all is to be sent, what is zero here is not zero elsewhere.
            mine = self.memory.select(residual, k).index if k < m else torch.arange(m, device=message.device)
            message[: mine.numel()] = mine
        message = collective.broadcast(message, leader)
        self.memory.chosen = index = message[message != PADDING]  # on all ranks
        self.memory.selected = index.numel()
        update = average_at(index.long(), residual, collective, out=gradient, room=k)
        if old is not None:
            residual.lerp_(old, 1 - self.beta)
        return update

    def skip_warmup(self) -> None:
        """Skips to a step that rank 0 leads, the rank that is timed: the others wait for what the leader selects."""
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        return {**self.memory.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
        self.steps = state["steps"]

    @staticmethod
    def cost(size: int, parameters: int, k: int, beta: float = 1.0) -> Cost:
        return in_turn(Cost(4 * k * log2(size), log2(size)), all_reduce(size, k))
