"""Momentum before selection (Lin et al., ICLR 2018, section 3), or a gain in its place, for any algorithm."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from repro.algorithms import Algorithm, residuals
from repro.algorithms._around import Around
from repro.clip import clip
from repro.comm.collective import Collective
from repro.compression.error_feedback import narrowed


class Corrected(Around):
    """Gives `inner` this rank's velocity, u = momentum u + g, in place of its gradient g; SGD then has no momentum.

    Without momentum u is g, and `gain` times each update is what momentum would amount to: 1 / (1 - momentum).

    `mask` sets to zero what is stale in u (momentum factor masking): entries that this rank `selected`, as in DGC, or
    only those of them that were `delivered`, which are in the update. `clip` bounds the L2 norm of each rank's gradient
    by clip / sqrt(P); 0 does not. `boost` > 1 multiplies each entry of u by the steps since it was last delivered from
    here, by so much at most, and so for good.
    """

    def __init__(
        self,
        inner: Algorithm,
        parameters: int,
        device: torch.device | str = "cpu",
        momentum: float = 0.9,
        mask: str = "none",
        clip: float = 0.0,
        boost: float = 1.0,
        gain: float = 1.0,
    ):
        super().__init__(inner)
        self.momentum, self.mask, self.clip = momentum, mask, clip
        self.boost, self.gain = boost, gain
        self.velocity = torch.zeros(parameters if momentum else 0, dtype=torch.float32, device=device)
        self.waited = torch.ones(parameters if boost > 1 else 0, dtype=torch.float32, device=device)  # steps

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        if self.clip:
            clip(gradient, self.clip / math.sqrt(collective.size))
        if self.momentum or self.boost > 1:
            velocity = self.velocity.mul_(self.momentum).add_(gradient) if self.momentum else gradient
            self._round(velocity * self.waited if self.boost > 1 else velocity, gradient)
        update = self.inner.step(gradient, collective)
        if self.chosen is not None:
            self._after(self.chosen.long(), update)
        if self.gain != 1:
            self._round(update.to(self.velocity.dtype).mul_(self.gain), update, self.gain)
        return update

    def _round(self, values: Tensor, out: Tensor, times: float = 1.0) -> None:
        """Writes `values`, `times` as large as what is fed back, to `out`, and what its rounding takes to the residual.

        Of equal gradients that is the same in each step.
        """
        out.copy_(narrowed(values, out.dtype))
        if out.dtype.itemsize < values.itemsize:
            residual, _ = residuals(self.inner)
            if residual is not None:
                residual += (values - out) / times

    def _after(self, chosen: Tensor, update: Tensor) -> None:
        delivered = update[chosen] != 0
        if self.mask != "none":
            self.velocity[chosen if self.mask == "selected" else chosen[delivered]] = 0
        if self.boost > 1:
            self.waited.add_(1).clamp_(max=self.boost)[chosen[delivered]] = 1

    def state_dict(self) -> dict[str, Any]:
        return {**self.inner.state_dict(), "velocity": self.velocity} | (
            {"waited": self.waited} if self.boost > 1 else {}
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)
        if self.momentum:  # without, older states have one that was not used
            self.velocity.copy_(state["velocity"])
        if self.boost > 1:
            self.waited.copy_(state["waited"])
