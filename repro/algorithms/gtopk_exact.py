"""Exact gTop-k (ours): the k largest of the sum of all ranks' k largest, which no tree of merges gives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.costs import Cost
from repro.feedback import ErrorFeedback
from repro.owners import bound, gather, largest, ranges, sum_at_owners, top
from repro.schedule import entries
from repro.sparse import Sparse, outside, to_dense


def cost(size: int, parameters: int, k: int) -> Cost:
    """At most 24 k bytes; 16 k (P-1)/P (4 k words) where the owners' ranges are balanced."""
    return bound(size, k)


class Algorithm:
    """Owners of index ranges sum the entries, histograms of their magnitudes find the cut, and owners share the rest.

    The same update as gtopk_from_topk, bit for bit, for 4 k words a node instead of 2 k (P-1). An entry that is not
    in the update goes back whole to the ranks it came from, so nothing is lost. The ranges are those that would
    have held equally many of the last update's entries, which all ranks know.
    """

    density = 0.001
    messages_depend_on_values = True

    def __init__(self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact"):
        self.memory = ErrorFeedback(parameters, device, selector)
        self.last = torch.empty(0, dtype=torch.int32, device=device)  # indices of the last update

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        m = gradient.numel()
        k = entries(self.density, m)
        local = self.memory.accumulate_and_select(gradient, k)
        mine = sum_at_owners(local, ranges(self.last, collective.size, m), collective)
        total = top(gather(largest(mine, k, collective), collective), k)
        self.memory.put_back(outside(local, total))
        self.last = total.index
        return to_dense(Sparse(total.index, total.value / collective.size), out=gradient)

    def state_dict(self) -> dict[str, Any]:
        return {**self.memory.state_dict(), "last": self.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
        self.last = state["last"].clone()
