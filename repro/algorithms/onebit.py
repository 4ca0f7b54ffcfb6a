"""1-bit SGD (Seide et al., Interspeech 2014) with error feedback on worker and server (DoubleSqueeze, ICML 2019)."""

from __future__ import annotations

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, scatter_reduce
from repro.comm.primitives import compressed_scatter_reduce
from repro.compression.codecs import Sign
from repro.compression.error_feedback import CompressionErrors, rounded


class Algorithm(algorithms.Algorithm):
    """Sends one sign per entry and one scale, the mean magnitude, per `bucket` entries; 0 means an owner's m/P.

    One scale stands for both signs (Karimireddy et al., ICML 2019), where Seide et al. have the mean of the negative
    entries of a layer's column and that of the others.
    """

    memory: CompressionErrors

    def __init__(self, parameters: int, device: torch.device | str = "cpu", bucket: int = 1024):
        self.codec, self.memory = Sign(bucket), CompressionErrors(parameters, device)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        total = compressed_scatter_reduce(gradient, collective, self.codec, *self.memory.of(collective.size))
        return rounded(total.div_(collective.size), gradient, self.memory.residual)

    @staticmethod
    def cost(size: int, parameters: int, k: int, bucket: int = 1024) -> Cost:
        return scatter_reduce(size, Sign(bucket).nbytes(-(-parameters // size)))
