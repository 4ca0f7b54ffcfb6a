"""gTop-k S-SGD (Shi et al., ICDCS 2019): merge two ranks' k largest at a time; k survive log2 P rounds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective, distances
from repro.costs import PAIR_BYTES, Cost, log2
from repro.feedback import ErrorFeedback
from repro.schedule import entries
from repro.sparse import Sparse, merge_with_rest, outside, pack, to_dense, unpack


def cost(size: int, parameters: int, k: int, route: str = "tree", residual: str = "paper") -> Cost:
    """8 k log2 P bytes; 2 log2 P rounds by the tree, log2 P by the butterfly (+ 1, + 2 beyond a power of 2)."""
    if route == "tree":
        return Cost(PAIR_BYTES * k * log2(size), 2 * log2(size))
    core, beyond = size.bit_length() - 1, size & (size - 1) > 0
    return Cost(PAIR_BYTES * k * (core + beyond), core + 2 * beyond)


class Algorithm:
    """`route`: `tree` to rank 0 and broadcast, as in the paper, or `butterfly`, half its critical path.

    `residual`: `paper` puts a rank's entries back if they are not among the final k, and loses what a merge
    dropped of the others; `exact` returns what each merge drops to exactly one rank, so no mass is ever lost.
    """

    density = 0.001

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        selector: str = "exact",
        route: str = "tree",
        residual: str = "paper",
    ):
        self.memory = ErrorFeedback(parameters, device, selector)
        self.reduce = {"tree": self.tree, "butterfly": self.butterfly}[route]
        self.exact = {"paper": False, "exact": True}[residual]

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        k = entries(self.density, gradient.numel())
        local = self.memory.accumulate_and_select(gradient, k)
        total = self.reduce(local, k, collective)
        if not self.exact:
            self.memory.put_back(outside(local, total))
        return to_dense(Sparse(total.index, total.value / collective.size), out=gradient)

    def tree(self, mine: Sparse, k: int, collective: Collective) -> Sparse:
        """Alg. 3: a binomial tree of merges to rank 0, then a broadcast: 2 ceil(log2 P) rounds of k pairs."""
        rank = collective.rank
        for distance in distances(collective.size):
            if rank % (2 * distance) == distance:
                collective.send(pack(mine, k), rank - distance)
                break
            if rank + distance < collective.size:
                mine = self.merge(mine, collective.recv(pack(mine, k), rank + distance), k)
        return unpack(collective.broadcast(pack(mine, k)), mine.value.dtype)

    def butterfly(self, mine: Sparse, k: int, collective: Collective) -> Sparse:
        """Partners at distance 1, 2, 4, ... swap and merge alike: all have the result after log2 P rounds.

        Ranks beyond the largest power of two fold into the first ones before, and hear the result after.
        """
        rank, size = collective.rank, collective.size
        core = 1 << (size.bit_length() - 1)
        if rank >= core:
            collective.send(pack(mine, k), rank - core)
            return unpack(collective.recv(pack(mine, k), rank - core), mine.value.dtype)
        if rank + core < size:
            mine = self.merge(mine, collective.recv(pack(mine, k), rank + core), k)
        for distance in distances(core):
            theirs = collective.exchange(pack(mine, k), rank ^ distance)
            mine = self.merge(mine, theirs, k, rank, sharers=2 * distance)
        if rank + core < size:
            collective.send(pack(mine, k), rank + core)
        return mine

    def merge(self, mine: Sparse, wire: Tensor, k: int, rank: int = 0, sharers: int = 1) -> Sparse:
        """Merge what came; of the rest, this rank keeps the share that no other of the `sharers` keeps."""
        total, rest = merge_with_rest(mine, unpack(wire, mine.value.dtype), k)
        if self.exact:
            share = rest.index % sharers == rank % sharers
            self.memory.put_back(Sparse(rest.index[share], rest.value[share]))
        return total

    def state_dict(self) -> dict[str, Any]:
        return self.memory.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
