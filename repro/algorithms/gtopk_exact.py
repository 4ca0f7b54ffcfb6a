"""Exact gTop-k (ours): finds the k largest of the sum of all ranks' k largest, which no tree of merges gives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost
from repro.comm.owner_sums import bound, gather, largest, ranges, sum_at_owners
from repro.compression.error_feedback import ErrorFeedback
from repro.compression.selectors import at_most
from repro.compression.sparse import outside
from repro.compression.wire import Wire
from repro.density import entries


class Algorithm(algorithms.Algorithm):
    """Sums entries at owners of index ranges, finds the cut with histograms, and gathers what is above the cut.

    Over a lossless wire the update of a float32 gradient equals that of gtopk_from_topk, bit for bit, for 4 k words per
    node, where ranges are balanced, instead of 2 k (P-1). An entry that is not in the update goes back whole to the
    ranks it came from, so nothing is lost. The ranges are those that would have held equally many of the last update's
    entries, which all ranks know.
    """

    density = 0.001
    sends_pairs = True
    memory: ErrorFeedback
    wire: Wire
    messages_depend_on_values = True

    def __init__(
        self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact", wire: str = "pairs"
    ):
        self.memory = ErrorFeedback(parameters, device, selector)
        self.wire = Wire(wire, self.memory)
        self.last = torch.empty(0, dtype=torch.int32, device=device)  # indices of the last update

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        m = gradient.numel()
        k = entries(self.density, m)
        local = self.memory.accumulate_and_select(gradient, k)
        boundaries = ranges(self.last, collective.size, m)
        mine = sum_at_owners(local, boundaries, self.wire, collective)
        total = at_most(gather(largest(mine, k, collective), boundaries, self.wire, collective), k)
        self.memory.put_back(outside(local, total))
        self.wire.put_back_rounding(total)
        self.last = total.index
        return self.memory.average(total, collective.size, out=gradient)

    def state_dict(self) -> dict[str, Any]:
        return {**self.memory.state_dict(), "last": self.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
        self.last = state["last"].to(self.last.device, copy=True)

    @staticmethod
    def cost(size: int, parameters: int, k: int, wire: str = "pairs") -> Cost:
        return bound(size, parameters, k, wire)
