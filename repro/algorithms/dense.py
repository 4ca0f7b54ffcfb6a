"""Dense S-SGD: the baseline. Every gradient entry crosses the network in a ring all-reduce."""

from __future__ import annotations

from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_reduce
from repro.comm.primitives import mean


class Algorithm(algorithms.Algorithm):
    compresses = False

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        return mean(gradient, collective)

    @staticmethod
    def cost(size: int, parameters: int, k: int) -> Cost:
        return all_reduce(size, parameters)
