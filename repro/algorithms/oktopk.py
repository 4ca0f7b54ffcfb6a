"""Ok-Topk (Li & Hoefler, PPoPP 2022, Alg. 1): balanced owners sum what exceeds thresholds that seldom change."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import Cost
from repro.feedback import ErrorFeedback
from repro.owners import bound, gather, largest, ranges, sum_at_owners, top
from repro.schedule import entries
from repro.selectors import above, at_most, named
from repro.sparse import Sparse, outside, to_dense


def cost(size: int, parameters: int, k: int, threshold_every: int = 32, space_every: int = 64) -> Cost:
    """At most 24 k bytes (6 k words) where the thresholds let k entries through."""
    return bound(size, k)


class Algorithm:
    """Every `threshold_every` steps the thresholds of what is sent and what is kept are set to let exactly k through;
    every `space_every` steps the owners' ranges become the mean of those that would suit each rank.

    Two differences from the paper: a rank never sends more than k entries, however stale its threshold is; and the
    global threshold comes from histograms, where the paper gathers all sums.
    """

    density = 0.001
    messages_depend_on_values = True

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        selector: str = "exact",
        threshold_every: int = 32,
        space_every: int = 64,
    ):
        if min(threshold_every, space_every) < 1:
            raise ValueError("threshold_every and space_every count steps: at least 1")
        self.memory = ErrorFeedback(parameters, device, selector)
        self.memory.select, self.select_anew = self.select, named(selector)
        self.threshold_every, self.space_every = threshold_every, space_every
        self.local_threshold = self.threshold = 0.0
        self.boundaries = torch.empty(0, dtype=torch.int64, device=device)
        self.steps = 0

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        m = gradient.numel()
        k = entries(self.density, m)
        local = self.memory.accumulate_and_select(gradient, k)
        if self.steps % self.space_every == 0:
            own = ranges(local.index, collective.size, m)
            self.boundaries = collective.all_reduce(own) // collective.size
        mine = sum_at_owners(local, self.boundaries, collective)
        if self.steps % self.threshold_every == 0:
            total = top(gather(largest(mine, k, collective), collective), k)
            self.threshold = float(total.value.abs().min()) if total.value.numel() else 0.0
        else:
            kept = mine.value.abs() >= self.threshold
            total = gather(Sparse(mine.index[kept], mine.value[kept]), collective)
        self.steps += 1
        self.memory.put_back(outside(local, total))
        return to_dense(Sparse(total.index, total.value / collective.size), out=gradient)

    def select(self, x: Tensor, k: int) -> Sparse:
        if self.steps % self.threshold_every:
            return at_most(above(x, self.local_threshold), k)
        chosen = self.select_anew(x, k)
        self.local_threshold = float(chosen.value.abs().min()) if chosen.value.numel() else 0.0
        return chosen

    def state_dict(self) -> dict[str, Any]:
        own = ("local_threshold", "threshold", "boundaries", "steps")
        return {**self.memory.state_dict(), **{name: getattr(self, name) for name in own}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
        self.local_threshold, self.threshold = state["local_threshold"], state["threshold"]
        self.boundaries, self.steps = state["boundaries"].clone(), state["steps"]
