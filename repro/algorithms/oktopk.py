"""Ok-Topk (Li & Hoefler, PPoPP 2022, Alg. 1): balanced owners sum entries above thresholds that seldom change."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_reduce, in_turn
from repro.comm.owner_sums import bound, gather, largest, ranges, sum_at_owners
from repro.compression.error_feedback import ErrorFeedback
from repro.compression.selectors import above, at_most, named
from repro.compression.sparse import Sparse, outside
from repro.compression.wire import Wire
from repro.density import entries


class Algorithm(algorithms.Algorithm):
    """Sets the send and keep thresholds every `threshold_every` steps, each so that exactly k entries pass.

    Sets them anew where k is another than in the step before, as in a warm-up of the density.

    Every `space_every` steps the owners' ranges become the mean of the ranges that suit each rank.

    Three differences from the paper: a rank never sends more than k entries, however stale its threshold is; the
    global threshold comes from histograms, where the paper gathers all sums; and what was not sent waits as a gradient,
    where the paper's residual has been multiplied by the learning rate of its time. Three from the authors' code,
    which is dense in its first 512 steps (VGG; LSTM: 128, BERT: none); which moves the thresholds in between by 0.8 to
    3.6 % a step where they let far more or fewer than k entries through, and more within a step that would send over
    4k/3 (VGG; LSTM: 3k/2); and which, for VGG and LSTM, gathers the sums without having spread them evenly.
    """

    density = 0.001
    sends_pairs = True
    memory: ErrorFeedback
    wire: Wire
    messages_depend_on_values = True

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        selector: str = "exact",
        wire: str = "pairs",
        threshold_every: int = 32,
        space_every: int = 64,
    ):
        if min(threshold_every, space_every) < 1:
            raise ValueError("threshold_every and space_every count steps: at least 1")
        self.memory = ErrorFeedback(parameters, device, selector)
        self.wire = Wire(wire, self.memory)
        self.memory.select, self.select_anew = self.select, named(selector)
        self.threshold_every, self.space_every = threshold_every, space_every
        self.local_threshold = self.threshold = 0.0
        self.boundaries = torch.empty(0, dtype=torch.int64, device=device)
        self.steps = self.k = 0
        self.renew = True  # whether this step sets thresholds

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        m = gradient.numel()
        k = entries(self.density, m)
        self.renew, self.k = self.steps % self.threshold_every == 0 or k != self.k, k
        local = self.memory.accumulate_and_select(gradient, k)
        if self.steps % self.space_every == 0:
            suits_this_rank = ranges(local.index, collective.size, m)
            self.boundaries = collective.all_reduce(suits_this_rank) // collective.size
        mine = sum_at_owners(local, self.boundaries, self.wire, collective)
        if self.renew:
            total = at_most(gather(largest(mine, k, collective), self.boundaries, self.wire, collective), k)
            self.threshold = float(total.value.abs().min()) if total.value.numel() else 0.0
        else:
            kept = ~(mine.value.abs() < self.threshold)  # with what is not a number, which the others are to see
            total = gather(Sparse(mine.index[kept], mine.value[kept]), self.boundaries, self.wire, collective)
        self.steps += 1
        self.memory.put_back(outside(local, total))
        self.wire.put_back_rounding(total)
        return self.memory.average(total, collective.size, out=gradient)

    def select(self, x: Tensor, k: int) -> Sparse:
        if not self.renew:
            return at_most(above(x, self.local_threshold), k)
        chosen = self.select_anew(x, k)
        self.local_threshold = float(chosen.value.abs().min()) if chosen.value.numel() else 0.0
        return chosen

    def state_dict(self) -> dict[str, Any]:
        thresholds = {"local_threshold": self.local_threshold, "threshold": self.threshold, "k": self.k}
        return {**self.memory.state_dict(), **thresholds, "boundaries": self.boundaries, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
        self.local_threshold, self.threshold = state["local_threshold"], state["threshold"]
        self.boundaries = state["boundaries"].to(self.boundaries.device, copy=True)
        self.steps, self.k = state["steps"], state["k"]

    @staticmethod
    def cost(size: int, parameters: int, k: int, wire: str = "pairs", **every: int) -> Cost:
        return in_turn(bound(size, parameters, k, wire), all_reduce(size, size - 1, 8))
