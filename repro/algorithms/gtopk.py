"""gTop-k S-SGD (Shi et al., ICDCS 2019): log2 P rounds merge two ranks' k largest at a time and keep k."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective, distances
from repro.comm.cost_formulas import Cost, log2, message_bytes
from repro.compression.error_feedback import ErrorFeedback
from repro.compression.sparse import Sparse, merge_with_rest, outside
from repro.compression.wire import Wire
from repro.density import entries


class Algorithm(algorithms.Algorithm):
    """Merges by `route`: `tree` to rank 0 and broadcast, as in the paper, or `butterfly`, with half its critical path.

    `residual`: `paper` puts a rank's entries back if they are not among the final k, and loses what a merge drops
    of the others; `exact` returns what each merge drops to exactly one rank, so no mass is ever lost.
    """

    density = 0.001
    sends_pairs = True
    memory: ErrorFeedback
    wire: Wire

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        selector: str = "exact",
        wire: str = "pairs",
        route: str = "tree",
        residual: str = "paper",
    ):
        self.memory = ErrorFeedback(parameters, device, selector)
        self.wire = Wire(wire, self.memory)
        self.reduce = {"tree": self.tree, "butterfly": self.butterfly}[route]
        self.exact = {"paper": False, "exact": True}[residual]

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        k = entries(self.density, gradient.numel())
        local = self.memory.accumulate_and_select(gradient, k)
        total = self.reduce(local, k, collective)
        if not self.exact:
            self.memory.put_back(outside(local, total))
        self.wire.put_back_rounding(None if self.exact else total)
        return self.memory.average(total, collective.size, out=gradient)

    def tree(self, mine: Sparse, k: int, collective: Collective) -> Sparse:
        """Merges along a binomial tree to rank 0, then broadcasts: 2 ceil(log2 P) rounds of k pairs."""
        rank, message = collective.rank, self.wire.room(k)
        for distance in distances(collective.size):
            if rank % (2 * distance) == distance:
                collective.send(self.wire.pack(mine, k)[0], rank - distance)
                break
            if rank + distance < collective.size:
                mine = self.merge(mine, collective.recv(message, rank + distance), k)
        if rank == 0:
            message, _ = self.wire.pack(mine, k)
        return self.wire.unpack(collective.broadcast(message), k)

    def butterfly(self, mine: Sparse, k: int, collective: Collective) -> Sparse:
        """Lets partners at distance 1, 2, 4, ... swap and merge alike: all have the result after log2 P rounds.

        Ranks beyond the largest power of two send to the first ranks before, and receive the result after. All ranks
        of a group that hold one vector send what it is rounded to; the first of them keeps what rounding takes.
        """
        rank, size = collective.rank, collective.size
        core = 1 << (size.bit_length() - 1)
        if rank >= core:
            collective.send(self.wire.pack(mine, k)[0], rank - core)
            return self.wire.unpack(collective.recv(self.wire.room(k), rank - core), k)
        if rank + core < size:
            mine = self.merge(mine, collective.recv(self.wire.room(k), rank + core), k)
        for distance in distances(core):
            message, mine = self.wire.pack(mine, k, keeps=rank % distance == 0)
            mine = self.merge(mine, collective.exchange(message, rank ^ distance), k, rank, sharers=2 * distance)
        if core < size:  # also a rank that sends to none must hold what the others receive
            message, mine = self.wire.pack(mine, k, keeps=rank == 0)
        if rank + core < size:
            collective.send(message, rank + core)
        return mine

    def merge(self, mine: Sparse, message: Tensor, k: int, rank: int = 0, sharers: int = 1) -> Sparse:
        """Merges what was received; of what is dropped, this rank keeps the share that no other of `sharers` keeps."""
        total, rest = merge_with_rest(mine, self.wire.unpack(message, k), k)
        if self.exact:
            share = rest.index % sharers == rank % sharers
            self.memory.put_back(Sparse(rest.index[share], rest.value[share]))
        return total

    @staticmethod
    def cost(
        size: int, parameters: int, k: int, wire: str = "pairs", route: str = "tree", residual: str = "paper"
    ) -> Cost:
        message = message_bytes(wire, k, parameters)
        if route == "tree":
            return Cost(message * log2(size), 2 * log2(size))
        core, beyond = size.bit_length() - 1, size & (size - 1) > 0
        return Cost(message * (core + beyond), core + 2 * beyond)

    @staticmethod
    def path(cost: Cost, size: int, route: str = "tree", **options: Any) -> Cost:
        """Counts the tree's messages up and down, of which a node sends at most half.

        By the butterfly each node sends one a round, but for nodes beyond a power of two, whose first it waits for.
        """
        if route == "tree":
            return Cost(2 * cost.bytes, cost.rounds)
        sent = cost.rounds - (size & (size - 1) > 0)
        return Cost(cost.bytes // max(sent, 1) * cost.rounds, cost.rounds)
