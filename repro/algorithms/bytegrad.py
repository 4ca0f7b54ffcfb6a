"""ByteGrad (BAGUA, arXiv:2107.01499, table 1): sends 8-bit min-max codes to the owners that sum, and back."""

from __future__ import annotations

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, scatter_reduce
from repro.comm.primitives import compressed_scatter_reduce
from repro.compression.codecs import MinMax


class Algorithm(algorithms.Algorithm):
    """Lets `bucket` entries share a minimum and a maximum; 0 means all m/P entries of an owner."""

    def __init__(self, parameters: int, device: torch.device | str = "cpu", bucket: int = 0):
        self.codec = MinMax(bucket)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        total = compressed_scatter_reduce(gradient, collective, self.codec)
        return gradient.copy_(total.div_(collective.size))

    @staticmethod
    def cost(size: int, parameters: int, k: int, bucket: int = 0) -> Cost:
        return scatter_reduce(size, MinMax(bucket).nbytes(-(-parameters // size)))
