"""Dense S-SGD through one server, rank 0 (Li et al., OSDI 2014): it hears all, sums, and answers each in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import Cost


def cost(size: int, parameters: int, k: int) -> Cost:
    """The server: 4 m (P-1) bytes in 2 (P-1) rounds."""
    return Cost(4 * parameters * (size - 1), 2 * (size - 1))


class Algorithm:
    density = 1.0

    def __init__(self, parameters: int, device: torch.device | str = "cpu"):
        pass

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        return gradient.copy_(through_server(gradient, total, collective)).div_(collective.size)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def through_server(x: Tensor, combine: Callable[[list[Tensor]], Tensor], collective: Collective) -> Tensor:
    """`combine` of all ranks' x, in rank order, computed on rank 0 and sent to each of the others in turn."""
    others = range(1, collective.size)
    if collective.rank:
        collective.send(x, 0)
        return collective.recv(x, 0)
    result = combine([x, *(collective.recv(x, peer) for peer in others)])
    for peer in others:
        collective.send(result, peer)
    return result


def total(pushed: list[Tensor]) -> Tensor:
    return torch.stack(pushed).sum(0)
