"""A network that only takes its time: layers of given shapes whose gradients come at given moments and are zero."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class StandIn(nn.Module):
    """`ready`: seconds from the forward call until the gradient of each layer, the first layer's last."""

    def __init__(self, shapes: Sequence[Sequence[int]], ready: Sequence[float]):
        super().__init__()
        self.layers = nn.ParameterList([nn.Parameter(torch.zeros(*shape)) for shape in shapes])
        self.ready = ready

    def forward(self) -> Tensor:
        began, x = time.monotonic(), torch.zeros(())
        for layer, moment in zip(self.layers, self.ready, strict=True):
            x = _Wait.apply(x, layer, began + moment)
        return x


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Tensor, until: float) -> Tensor:
        ctx.until, ctx.layer = until, layer
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        time.sleep(max(0.0, ctx.until - time.monotonic()))
        return gradients[0], torch.zeros_like(ctx.layer), None
