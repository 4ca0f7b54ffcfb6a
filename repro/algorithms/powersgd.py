"""PowerSGD (Vogels et al., NeurIPS 2019): approximates layers by low-rank matrices (Alg. 1), with error feedback.

Ranks agree to the bit if their machines make the factors orthogonal alike, as each does so alone.

Its Alg. 2, as the authors' code, steps by the update plus the momentum that it has just gone into. Here momentum is the
run's, SGD's heavy ball, which steps by the momentum alone: in the long run by 10 updates, not 11, at a momentum of 0.9.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from repro import algorithms
from repro.comm import primitives
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_reduce, in_turn
from repro.compression.error_feedback import narrowed
from repro.rng import derive

LOADS = threading.Lock()


class Layer(NamedTuple):
    """Views entries `start` to `stop` of the vector as a [rows, columns] matrix; rows = 0 sends them uncompressed."""

    start: int
    stop: int
    rows: int
    columns: int

    def matrix(self, x: Tensor) -> Tensor:
        x = x[self.start : self.stop]
        return F.pad(x, (0, self.rows * self.columns - x.numel())).view(self.rows, self.columns)


def layers(parameters: int, shapes: Sequence[Sequence[int]] | None, rank: int, smaller: int = 1) -> list[Layer]:
    """Makes one matrix per layer, [first dimension, all others]; without `shapes`, one nearly square matrix.

    One whose factors are not `smaller` times smaller is sent uncompressed.
    """
    total = sum(map(math.prod, shapes)) if shapes else parameters
    if total != parameters:
        raise ValueError(f"shapes hold {total} entries, the model has {parameters}")
    side = math.isqrt(parameters - 1) + 1
    split, start = [], 0
    for shape in shapes or [(side, -(-parameters // side))]:
        rows, columns = (shape[0] if len(shape) else 1), math.prod(shape[1:])
        stop = min(start + rows * columns, parameters)
        worthwhile = smaller * rank * (rows + columns) < stop - start
        split.append(Layer(start, stop, rows if worthwhile else 0, columns))
        start = stop
    return split


class Algorithm(algorithms.Algorithm):
    """Approximates by P Q^T of `rank`, starting from the last step's Q; vectors and small layers stay uncompressed.

    `shapes` lists the layers' shapes, in the order in which the vector holds them.
    """

    takes_shapes = True
    smaller = 1  # times that a layer's factors must be, and a little more, to be sent in its place
    residual: Tensor

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        rank: int = 2,
        seed: int = 0,
        shapes: Sequence[Sequence[int]] | None = None,
    ):
        split = layers(parameters, shapes, rank, self.smaller)
        self.matrices = [one for one in split if one.rows]
        self.vectors = [slice(one.start, one.stop) for one in split if not one.rows]
        self.residual = torch.zeros(parameters, dtype=torch.float32, device=device)
        generator = torch.Generator().manual_seed(derive(seed, "powersgd"))  # the same Q on every rank
        self.right = [
            torch.randn(one.columns, rank, generator=generator, dtype=torch.float32).to(device) for one in self.matrices
        ]
        with LOADS:  # CUDA's linear algebra, at its first use, which two threads at once may not be
            torch.linalg.qr(torch.ones(1, 1, dtype=torch.float32, device=device))

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        if collective.size == 1:
            return gradient
        total = self.residual.add_(gradient)
        matrices = [one.matrix(total) for one in self.matrices]
        products = [m @ q for m, q in zip(matrices, self.right, strict=True)]
        vectors = torch.cat([total[:0], *(total[span] for span in self.vectors)])
        *left, plain = self.means(products, vectors, collective)
        left = [torch.linalg.qr(p).Q for p in left]
        self.right = mean([m.T @ p for m, p in zip(matrices, left, strict=True)], collective)

        update = gradient  # its values are in the residual now
        for one, p, q in zip(self.matrices, left, self.right, strict=True):
            update[one.start : one.stop] = narrowed((p @ q.T).view(-1)[: one.stop - one.start], update.dtype)
        self.residual -= update
        for span, value in zip(self.vectors, plain.split([s.stop - s.start for s in self.vectors]), strict=True):
            update[span] = narrowed(value, update.dtype)
            self.residual[span] = value - update[span]  # zeros, but for what a bfloat16 rounds away
        return update

    def means(self, products: list[Tensor], vectors: Tensor, collective: Collective) -> list[Tensor]:
        """Averages the left factors, and what is sent uncompressed."""
        return mean([*products, vectors], collective)

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual, "right": self.right}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual.copy_(state["residual"])
        self.right = [q.to(self.residual.device, copy=True) for q in state["right"]]

    @staticmethod
    def cost(
        size: int, parameters: int, k: int, rank: int = 2, seed: int = 0, shapes: Sequence[Sequence[int]] | None = None
    ) -> Cost:
        split = layers(parameters, shapes, rank)
        left = sum(rank * one.rows if one.rows else one.stop - one.start for one in split)
        right = sum(rank * one.columns for one in split if one.rows)
        return in_turn(all_reduce(size, left), all_reduce(size, right) if right else Cost(0, 0))


def mean(parts: list[Tensor], collective: Collective) -> list[Tensor]:
    """Averages the parts over all ranks in one all-reduce."""
    if not parts:
        return []
    flat = primitives.mean(torch.cat([part.reshape(-1) for part in parts]), collective)
    return [x.view(part.shape) for x, part in zip(flat.split([p.numel() for p in parts]), parts, strict=True)]
