"""SparDL (Zhao et al., ICDE 2024): reduce-scatter and all-gather of k / P entries a block, for any number of nodes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective, distances
from repro.comm.cost_formulas import Cost, all_gather, in_turn, log2, message_bytes
from repro.compression.error_feedback import ErrorFeedback
from repro.compression.sparse import Sparse, add_sum, outside
from repro.compression.wire import Wire
from repro.density import entries


class Algorithm(algorithms.Algorithm):
    """Sums block r at rank r; what is sent of a block is cut to its share of k before each round.

    Rounds go to distances ..., 4, 2, 1, so that log2 P of them serve any P. As in the authors' code a block is cut
    when its turn comes: the largest of this rank's whole accumulated block plus what it received, not of two
    selections. What a cut drops stays in the residual there, and entries that miss the update return whole to the
    ranks they came from. Left out: teams of nodes (their Spar-All-Gather). Ours: messages have room for k / P pairs,
    where the code sends a length with each, blocks take turns where there are fewer entries than nodes, and all blocks
    of a distance go together, as in the paper: the code sends each by itself, in P - 1 rounds.
    """

    density = 0.001
    sends_pairs = True
    splits_k = True
    memory: ErrorFeedback
    wire: Wire

    def __init__(
        self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact", wire: str = "pairs"
    ):
        self.memory = ErrorFeedback(parameters, device, selector)
        self.wire = Wire(wire, self.memory)
        self.steps = 0

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        rank, size, m = collective.rank, collective.size, gradient.numel()
        k = entries(self.density, m)
        room, residual = -(-k // size), self.memory.residual.add_(gradient)
        edges, shares = ([n * block // size for block in range(size + 1)] for n in (m, k))
        shares = [after - before for before, after in pairwise(shares)]
        if k < size:  # a block whose share is always zero would never move
            turn = self.steps % size
            shares = shares[turn:] + shares[:turn]
        self.steps += 1
        wires = [self.wire.within(start, start, -(-self.wire.parameters // size)) for start in edges[:-1]]
        sent: list[Sparse] = []
        received: list[Sparse] = []

        def cut(block: int) -> Tensor:
            part, k_of_block = residual[edges[block] : edges[block + 1]], shares[block]
            if min(k_of_block, part.numel()):
                index, value = self.memory.select(part, k_of_block)
            else:
                index, value = part.new_empty(0, dtype=torch.int32), part[:0]
            chosen = Sparse(index + edges[block], value)
            residual[chosen.index.long()] = 0
            sent.append(chosen)
            return wires[block].pack(chosen, room)[0]

        for distance in reversed(list(distances(size))):
            count = min(distance, size - distance)
            blocks = [(rank + offset) % size for offset in range(count)]
            message = torch.stack([cut((block + distance) % size) for block in blocks])
            answer = collective.shift(message, (rank + distance) % size, (rank - distance) % size)
            received += [wires[block].unpack(row, room) for block, row in zip(blocks, answer, strict=True)]
            add_sum(received[-count:], residual)
        gathered = collective.all_gather(cut(rank))
        parts = [wire.unpack(row, room) for wire, row in zip(wires, gathered, strict=True)]
        total = Sparse(torch.cat([part.index for part in parts]), torch.cat([part.value for part in parts]))
        self.memory.chosen = torch.cat([part.index for part in sent])
        self.memory.selected = self.memory.chosen.numel()

        for part in sent:
            self.memory.put_back(outside(part, total))
        for part in received:  # which those who sent it put back
            index, value = outside(part, total)
            self.memory.put_back(Sparse(index, -value))
        self.wire.put_back_rounding(total)
        return self.memory.average(total, size, out=gradient)

    def state_dict(self) -> dict[str, Any]:
        return {**self.memory.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state)
        self.steps = state["steps"]

    @staticmethod
    def cost(size: int, parameters: int, k: int, wire: str = "pairs") -> Cost:
        block = message_bytes(wire, -(-k // size), -(-parameters // size))
        return in_turn(Cost((size - 1) * block, log2(size)), all_gather(size, block))
