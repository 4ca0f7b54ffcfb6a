"""Defines a model that only waits: layers of given shapes whose gradients come at given moments and are zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class StandIn(nn.Module):
    """Sleeps in backward until `ready`, the seconds from the forward call to each layer's gradient (the first last)."""

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        ready: Sequence[float],
        now: Callable[[], float],
        sleep_until: Callable[[float], None],
    ):
        """`sleep_until` takes a moment of `now`, and lets the watchdog know that this rank does not hang."""
        super().__init__()
        self.now, self.sleep_until = now, sleep_until
        self.layers = nn.ParameterList([nn.Parameter(torch.zeros(*shape)) for shape in shapes])
        self.ready = ready

    def forward(self) -> Tensor:
        began, x = self.now(), torch.zeros(())
        for layer, moment in zip(self.layers, self.ready, strict=True):
            x = _Wait.apply(x, layer, self.sleep_until, began + moment)
        return x


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Tensor, sleep_until: Callable[[float], None], until: float) -> Tensor:
        ctx.sleep_until, ctx.until, ctx.layer = sleep_until, until, layer
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        ctx.sleep_until(ctx.until)
        return gradients[0], torch.zeros_like(ctx.layer), None, None
