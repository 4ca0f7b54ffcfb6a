"""Divides layers into tiles and transforms each by a cosine transform (DCT-II): what DeMo selects from.

The transform is orthonormal, so its inverse is its transpose and it keeps every tile's norm. It needs 2 s products an
entry for tiles of side s, as two matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Shape = tuple[int, int]


class Tiles(NamedTuple):
    """Holds equal tiles: `entry` [n, rows, columns] says where in the flat vector each entry is."""

    entry: Tensor
    down: Tensor  # the transform of columns [rows, rows]
    along: Tensor  # the transform of rows [columns, columns]

    def transform(self, x: Tensor) -> Tensor:
        """Returns the coefficients [n, rows * columns] of x [m]."""
        return (self.down @ x[self.entry] @ self.along.T).flatten(1)

    def restore(self, coefficients: Tensor, out: Tensor) -> None:
        """Writes what `transform` gave these coefficients into out [m]."""
        out[self.entry] = self.down.T @ coefficients.view(self.entry.shape) @ self.along

    @property
    def size(self) -> int:
        return self.entry.shape[1] * self.entry.shape[2]


def divide(
    parameters: int, shapes: Sequence[Sequence[int]] | None, side: int, device: torch.device | str
) -> list[Tiles]:
    """Returns the tiles of all layers of `shapes`, one `Tiles` for each size, none longer or wider than `side`.

    A layer is a matrix [first dimension, all others], a vector a single row. The sides of its tiles are the largest
    divisors up to `side`. Without `shapes` the vector is one row, and the last tile may be shorter.
    """
    layers = [(shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape)) for shape in shapes or []]
    layers = [layer for layer in layers if math.prod(layer)]
    if not layers:
        whole = parameters // side * side
        layers = [(1, n) for n in (whole, parameters - whole) if n]
    if sum(map(math.prod, layers)) != parameters:
        raise ValueError(f"shapes hold {sum(map(math.prod, layers))} entries, the model has {parameters}")
    grouped: dict[Shape, list[Tensor]] = {}
    start = 0
    for rows, columns in layers:
        tile = divisor(rows, side), divisor(columns, side)
        entry = torch.arange(start, start + rows * columns, device=device).view(rows, columns)
        entry = entry.unflatten(1, (-1, tile[1])).unflatten(0, (-1, tile[0])).transpose(1, 2).flatten(0, 1)
        grouped.setdefault(tile, []).append(entry)
        start += rows * columns
    return [
        Tiles(torch.cat(entries), cosines(rows).to(device), cosines(columns).to(device))
        for (rows, columns), entries in grouped.items()
    ]


def divisor(n: int, most: int) -> int:
    """Returns the largest divisor of n up to `most`."""
    return next(d for d in range(min(n, most), 0, -1) if n % d == 0)


def cosines(n: int) -> Tensor:
    """Returns the orthonormal DCT-II as a matrix [n, n]: row f is the cosine of frequency f."""
    frequency, place = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n, dtype=torch.float64)
    matrix = torch.cos(math.pi * frequency * (2 * place + 1) / (2 * n)) * math.sqrt(2 / n)
    matrix[0] /= math.sqrt(2)
    return matrix.float()


def tile_sizes(parameters: int, shapes: Sequence[Sequence[int]] | None, side: int) -> list[tuple[int, int]]:
    """Returns, for each size of tile, how many there are and their entries."""
    return [(tiles.entry.shape[0], tiles.size) for tiles in divide(parameters, shapes, side, "meta")]
