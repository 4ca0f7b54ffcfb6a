"""Dense S-SGD through one server, rank 0 (Li et al., OSDI 2014): it receives from all, sums, and answers in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost


class Algorithm(algorithms.Algorithm):
    compresses = False

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        return gradient.copy_(through_server(gradient, average, collective))

    @staticmethod
    def cost(size: int, parameters: int, k: int) -> Cost:
        return Cost(4 * parameters * (size - 1), 2 * (size - 1))

    @staticmethod
    def path(cost: Cost, size: int, **options: Any) -> Cost:
        """Counts what the server gets before what it sends, which is as much."""
        return Cost(2 * cost.bytes, cost.rounds)


def through_server(x: Tensor, combine: Callable[[list[Tensor]], Tensor], collective: Collective) -> Tensor:
    """Applies `combine` to all ranks' x, in rank order, on rank 0 and sends the result to the others in turn."""
    others = range(1, collective.size)
    if collective.rank:
        collective.send(x, 0)
        return collective.recv(x, 0)
    result = combine([x, *(collective.recv(x, peer) for peer in others)])
    for peer in others:
        collective.send(result, peer)
    return result


def average(pushed: list[Tensor]) -> Tensor:
    wide = torch.promote_types(pushed[0].dtype, torch.float32)  # the sum of float16 could overflow
    return torch.stack(pushed).sum(0, dtype=wide).div_(len(pushed)).to(pushed[0].dtype)
