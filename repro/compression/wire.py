"""Turns an algorithm's sparse vectors into messages and back: the one place that knows which format `algo.wire` names.

A format may round. Then every rank, the sender too, goes on with what is decoded from the message, and what rounding
took goes into exactly one residual.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from repro.compression.error_feedback import ErrorFeedback
from repro.compression.pair_formats import lost, named
from repro.compression.sparse import Sparse, inside


class Wire:
    """Packs vectors of the model whose residual is in `memory`: indices from `start` to below `start + parameters`.

    In a simulation the residual is shorter than the model, and `parameters` is the model's.
    """

    def __init__(self, name: str, memory: ErrorFeedback):
        self.name, self.format, self.memory = name, named(name), memory
        self.start, self.parameters, self.dtype = 0, memory.residual.numel(), memory.residual.dtype
        self.taken: list[Sparse] = []  # by rounding in this step, from messages whose errors this rank keeps

    def pack(self, sparse: Sparse, k: int, keeps: bool = True) -> tuple[Tensor, Sparse]:
        """Returns the message, with room for k pairs, and what is decoded from it, with which the sender must go on.

        If several ranks send the same vector, only one of them `keeps` what rounding takes. A message that is passed
        on must not be packed again, as rounding twice may take more; `owner_sums.gather`, whose messages are divided
        anew on their way, does, and keeps what both take.
        """
        local = Sparse(sparse.index - self.start, sparse.value) if self.start else sparse
        message, decoded = self.format.encode(local, k, self.parameters)
        if decoded is local:
            return message, sparse
        received = Sparse(sparse.index, decoded.value)
        if keeps:
            self.taken.append(lost(sparse, received))
        return message, received

    def within(self, start: int, stop: int, parameters: int | None = None) -> Wire:
        """Returns a wire for indices from `start` to below `stop` alone, in which the gaps between them are shorter.

        `parameters` of the model are there; by default its share, as the span is of the residual.
        """
        if self.name == "pairs":
            return self
        part = copy.copy(self)  # what rounding takes is the same list
        share = -(-(stop - start) * self.parameters // self.memory.residual.numel())
        part.start, part.parameters = start, share if parameters is None else parameters
        return part

    def room(self, k: int) -> Tensor:
        """Returns an empty message to receive into."""
        size = self.format.nbytes(k, self.parameters, self.dtype)
        return torch.empty(size, dtype=torch.uint8, device=self.memory.residual.device)

    def unpack(self, message: Tensor, k: int) -> Sparse:
        index, value = self.format.decode(message, k, self.parameters, self.dtype)
        return Sparse(index + self.start if self.start else index, value)

    def sum(self, messages: Tensor, k: int, gradient: Tensor) -> Tensor:
        """Adds the messages [P, bytes] in row order: in place of the gradient [m] unless that is of lower precision."""
        narrow = gradient.dtype.itemsize < self.dtype.itemsize
        out = torch.zeros_like(gradient, dtype=self.dtype) if narrow else gradient.zero_()
        return self.format.add(messages, k, self.parameters, self.dtype, out)

    def put_back_rounding(self, update: Sparse | None = None) -> None:
        """Puts what rounding took in this step into the residual.

        With `update`, that of its entries alone: for algorithms that put all other entries back whole, unrounded.
        """
        for taken in self.taken:
            self.memory.put_back(taken if update is None else inside(taken, update))
        self.taken = []
