"""1-bit Adam (Tang et al., ICML 2021, arXiv:2102.02888, Alg. 1): Adam, then its momentum in signs, variance frozen."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import Cost, scatter_reduce
from repro.feedback import CompressionErrors
from repro.primitives import compressed_scatter_reduce
from repro.quantize import Sign


def cost(size: int, parameters: int, k: int, bucket: int = 1024, **others: Any) -> Cost:
    """After the warm-up, whose steps are dense: m (P-1)/P (1/4 + 8/bucket) bytes in P - 1 + log2 P rounds."""
    return scatter_reduce(size, Sign(bucket).nbytes(-(-parameters // size)))


class Algorithm:
    """The update is Adam's direction; the trainer's own momentum must be 0, and its weight decay acts as AdamW's.

    For `warmup_steps` the gradients are averaged in full precision; then each rank moves the common momentum by its
    own gradient, and what is averaged, in signs with error feedback, is the momentum. One rank stays with Adam.
    """

    density = 1.0

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
        self.warmup_steps, self.betas, self.eps = warmup_steps, (beta1, beta2), eps
        self.codec, self.errors = Sign(bucket), CompressionErrors(parameters, device)
        self.momentum = torch.zeros(parameters, device=device)
        self.variance = torch.zeros(parameters, device=device)
        self.steps = 0

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        (beta1, beta2), own = self.betas, gradient.float()
        self.steps += 1
        frozen = collective.size > 1 and self.steps > self.warmup_steps
        if not frozen:
            own = collective.all_reduce(own).div_(collective.size)
            self.variance.lerp_(own * own, 1 - beta2)
        self.momentum.lerp_(own, 1 - beta1)
        if frozen:
            errors = self.errors.of(collective.size)
            total = compressed_scatter_reduce(self.momentum, collective, self.codec, *errors)
            self.momentum = total / collective.size
        seen = max(1, self.warmup_steps) if frozen else self.steps  # steps that the variance is a mean of
        deviation = (self.variance.sqrt() / math.sqrt(1 - beta2**seen)).add_(self.eps)
        return gradient.copy_(self.momentum / (1 - beta1**self.steps) / deviation)

    def skip_warmup(self) -> None:
        """Most steps come after the warm-up, so those are what is measured before a run."""
        self.steps = max(self.steps, self.warmup_steps)

    def state_dict(self) -> dict[str, Any]:
        own = {"momentum": self.momentum, "variance": self.variance, "steps": self.steps}
        return {**self.errors.state_dict(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.errors.load_state_dict(state)
        self.momentum.copy_(state["momentum"])
        self.variance.copy_(state["variance"])
        self.steps = state["steps"]
