"""1-bit Adam (Tang et al., ICML 2021, arXiv:2102.02888, Alg. 1): after a warm-up, sends Adam's momentum as signs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, scatter_reduce
from repro.comm.primitives import compressed_scatter_reduce, mean
from repro.compression.codecs import Sign
from repro.compression.error_feedback import CompressionErrors

PLAIN = 1e-3  # the least eps by which momenta may be divided where there is no variance at all


class Algorithm(algorithms.Algorithm):
    """Returns Adam's direction; the trainer's own momentum must be 0, and its weight decay acts like AdamW's.

    For `warmup_steps` the gradients are averaged in full precision. Then the variance is frozen, each rank adds its
    gradient to the common momentum, and the momenta are averaged as signs with error feedback. P = 1 stays with Adam.
    Entries without any gradient in the warm-up, whose variance is zero, stay as they are from then on.

    Two differences from the authors' optimizer (DeepSpeed's): a sign's scale is the mean magnitude of its bucket, not
    the whole vector's root mean square, so that a message has a smaller norm than what it stands for; and Adam's bias
    corrections are applied, that of the variance as it was when the warm-up ended.
    """

    scales = True
    memory: CompressionErrors

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        warmup_steps: int = 1000,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        bucket: int = 1024,
    ):
        if not warmup_steps and eps < PLAIN:
            raise ValueError(f"warmup_steps=0 leaves eps alone to divide by: at least 1, or eps={PLAIN:g} or more")
        self.warmup_steps, self.betas, self.eps = warmup_steps, (beta1, beta2), eps
        self.codec, self.memory = Sign(bucket), CompressionErrors(parameters, device)
        self.momentum = torch.zeros(parameters, dtype=torch.float32, device=device)
        self.variance = torch.zeros(parameters, dtype=torch.float32, device=device)
        self.steps = 0

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        (beta1, beta2), moved_by = self.betas, gradient.float()
        self.steps += 1
        frozen = collective.size > 1 and self.steps > self.warmup_steps
        if not frozen:
            moved_by = mean(moved_by, collective)
            self.variance.lerp_(moved_by * moved_by, 1 - beta2)
        self.momentum.lerp_(moved_by, 1 - beta1)
        if frozen:
            total = compressed_scatter_reduce(self.momentum, collective, self.codec, *self.memory.of(collective.size))
            self.momentum = total / collective.size
        seen = max(1, self.warmup_steps) if frozen else self.steps  # steps in the variance's mean
        root = self.variance.double().sqrt().float()  # of a float32 MKL's last bit depends on the processor
        deviation = (root / math.sqrt(1 - beta2**seen)).add_(self.eps)
        update = self.momentum / (1 - beta1**self.steps) / deviation
        if frozen and self.warmup_steps:
            # the signs give each entry the mean of its bucket, also one that had no gradient: eps would divide that
            update[self.variance == 0] = 0
        return gradient.copy_(update)

    def skip_warmup(self) -> None:
        """Skips the warm-up, as most steps come after it and are the ones to measure before a run."""
        self.steps = max(self.steps, self.warmup_steps)

    def state_dict(self) -> dict[str, Any]:
        adam = {"momentum": self.momentum, "variance": self.variance, "steps": self.steps}
        return {**self.memory.state_dict(), **adam}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
        self.momentum.copy_(state["momentum"])
        self.variance.copy_(state["variance"])
        self.steps = state["steps"]

    @staticmethod
    def cost(size: int, parameters: int, k: int, bucket: int = 1024, **others: Any) -> Cost:
        return scatter_reduce(size, Sign(bucket).nbytes(-(-parameters // size)))
