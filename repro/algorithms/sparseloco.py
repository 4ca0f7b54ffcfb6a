"""SparseLoCo (Sarfi et al., arXiv:2508.15706): local steps, then the sparse 2-bit sum of how far each rank went."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_gather
from repro.compression.chunks import ChunkTopK


class Algorithm(algorithms.Algorithm):
    """Every `period` steps sends the `top` largest of each `chunk` entries of the residual, in 2 bits and an index.

    The residual takes the place of an outer momentum: it decays by `decay` and grows by the way a rank went since the
    last exchange. Then all ranks go on from one point: the last one, less `outer_lr` times the mean of what was sent.
    One rank alone goes on as it is.

    The mean is over all ranks, as in the paper; the public code has that over the ranks which sent an entry, P times
    as much where one did, and bounds each rank's norm by the ranks' median.

    Three differences from the paper: the inner optimizer is the run's SGD with each rank's own momentum, not AdamW;
    a chunk is 4,096 neighbours in the flat vector, not a tile of 64 x 64 of a layer; and the four levels are a sign
    and two magnitudes in each chunk, where the public code spreads four buckets over a layer's distribution.
    """

    mixes = True
    residual: Tensor

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        period: int = 15,
        chunk: int = 4096,
        top: int = 64,
        decay: float = 0.95,
        outer_lr: float = 1.0,
    ):
        if min(period, chunk, top) < 1:
            raise ValueError("algo.period, algo.chunk and algo.top must be at least 1")
        self.codec = ChunkTopK(parameters, chunk, top)
        self.period, self.decay, self.outer_lr, self.steps = period, decay, outer_lr, 0
        self.residual = torch.zeros(parameters, dtype=torch.float32, device=device)
        self.start = torch.zeros_like(self.residual)  # where all ranks stood after the last exchange

    def begin(self, parameters: Tensor) -> None:
        self.start.copy_(parameters)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        return gradient

    def mix(self, parameters: Tensor, collective: Collective) -> None:
        self.steps += 1
        if self.steps % self.period or collective.size == 1:
            return
        began = self.start.to(parameters.dtype)  # where this rank stood: rounding is no step that it took
        self.residual.mul_(self.decay).add_(began).sub_(parameters)
        message = self.codec.encode(self.residual)
        self.residual -= self.codec.decode(message)
        for row in collective.all_gather(message):
            self.start.sub_(self.codec.decode(row), alpha=self.outer_lr / collective.size)
        parameters.copy_(self.start)

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual, "start": self.start, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual.copy_(state["residual"])
        self.start.copy_(state["start"])
        self.steps = state["steps"]

    @staticmethod
    def cost(size: int, parameters: int, k: int, chunk: int = 4096, top: int = 64, **others: float) -> Cost:
        return all_gather(size, ChunkTopK(parameters, chunk, top).nbytes)
