"""Sparse vectors as (index, value) pairs: exact top-k selection and the paper's merge (Sec. III, Definition 1)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PADDING = torch.iinfo(torch.int32).max  # the index that fills up a packed vector with fewer than k entries


class Sparse(NamedTuple):
    """The non-zero entries of a vector: index int32 [n], ascending and without duplicates; value [n]."""

    index: Tensor
    value: Tensor


def select(x: Tensor, k: int) -> Sparse:
    """The k entries of x [m] with the largest magnitude, exactly; ties go to the smaller index.

    Zeros are never selected, so fewer than k entries come back when x has fewer non-zeros. x must hold no NaN.
    """
    return _keep_largest(x.abs(), k, torch.arange(x.numel(), dtype=torch.int32, device=x.device), x)[0]


def merge(a: Sparse, b: Sparse, k: int) -> Sparse:
    """The k entries of a + b with the largest magnitude; the same bits whichever operand comes first."""
    return merge_with_rest(a, b, k)[0]


def merge_with_rest(a: Sparse, b: Sparse, k: int) -> tuple[Sparse, Sparse]:
    """`merge` and what it dropped: kept + rest == a + b, entry for entry."""
    index, position = torch.cat([a.index, b.index]).unique(sorted=True, return_inverse=True)
    left = a.value.new_zeros(index.numel())
    right = b.value.new_zeros(index.numel())
    left[position[: a.index.numel()]] = a.value
    right[position[a.index.numel() :]] = b.value
    value = left + right
    return _keep_largest(value.abs(), k, index, value)


def to_dense(sparse: Sparse, out: Tensor) -> Tensor:
    """Write the sparse vector into out [m], zeros elsewhere."""
    out.zero_()
    out[sparse.index.long()] = sparse.value
    return out


def add_sum(vectors: list[Sparse], out: Tensor) -> Tensor:
    """out [m] += the sum of the sparse vectors, added in the order of the list (so every rank gets the same bits)."""
    for vector in vectors:
        out[vector.index.long()] += vector.value
    return out


def pack(sparse: Sparse, k: int) -> Tensor:
    """uint8 [k * (4 + itemsize)]: k indices, then k values, padded; what travels between ranks."""
    n = sparse.index.numel()
    if n > k:
        raise ValueError(f"{n} entries do not fit into a packed vector of {k}")
    index = sparse.index.new_full((k,), PADDING)
    value = sparse.value.new_zeros(k)
    index[:n] = sparse.index
    value[:n] = sparse.value
    return torch.cat([index.view(torch.uint8), value.view(torch.uint8)])


def unpack(buffer: Tensor, dtype: torch.dtype) -> Sparse:
    """The inverse of `pack` for values of `dtype`."""
    k = buffer.numel() // (4 + dtype.itemsize)
    index = buffer[: 4 * k].view(torch.int32)
    value = buffer[4 * k :].view(dtype)
    n = int((index != PADDING).sum())
    return Sparse(index[:n], value[:n])


def _keep_largest(magnitude: Tensor, k: int, index: Tensor, value: Tensor) -> tuple[Sparse, Sparse]:
    """Split (index, value) into the k largest magnitudes and the other non-zeros."""
    if k < 1:
        raise ValueError(f"k is {k}; it must be at least 1")
    keep = magnitude > 0
    if int(keep.sum()) > k:
        threshold = magnitude.topk(k, sorted=False).values.min()
        keep = magnitude > threshold
        ties = (magnitude == threshold).nonzero().squeeze(1)
        keep[ties[: k - int(keep.sum())]] = True
    rest = (magnitude > 0) & ~keep
    return Sparse(index[keep], value[keep]), Sparse(index[rest], value[rest])
