"""Sparse vectors as (index, value) pairs: exact top-k selection and the paper's merge (Definition 1).

float32 on a CPU goes through the compiled loops of `kernels.py`, bfloat16 and float16 too (as float32, which
holds them exactly); everything else, CUDA included, through torch operators. Both give the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from repro import kernels, sparse_torch

PADDING = torch.iinfo(torch.int32).max  # the index that fills up a packed vector with fewer than k entries
NOTHING = np.empty(0, np.float32)
COMPILED = (torch.float32, torch.bfloat16, torch.float16)


class Sparse(NamedTuple):
    """The non-zero entries of a vector: index int32 [n], ascending and without duplicates; value [n]."""

    index: Tensor  # type: ignore[assignment]  # shadows tuple.index
    value: Tensor


def select(x: Tensor, k: int) -> Sparse:
    """The k entries of x [m] with the largest magnitude, exactly; ties go to the smaller index.

    Zeros are never selected, so fewer than k come back when x has fewer non-zeros. x must hold no NaN.
    """
    if not _compiled(x):
        return Sparse(*sparse_torch.select(x, _checked(k)))
    return _select(x.detach().float().contiguous(), None, k, take=False, dtype=x.dtype)


def take_largest(residual: Tensor, gradient: Tensor, k: int) -> Sparse:
    """residual += gradient, then move the k largest entries out of the residual: one pass over both [m]."""
    if _compiled(residual) and gradient.dtype == residual.dtype == torch.float32:
        return _select(residual, gradient, k, take=True, dtype=residual.dtype)
    local = select(residual.add_(gradient), k)
    residual[local.index.long()] = 0
    return local


def merge(a: Sparse, b: Sparse, k: int) -> Sparse:
    """The k entries of a + b with the largest magnitude; the same bits whichever operand comes first."""
    return merge_with_rest(a, b, k)[0]


def merge_with_rest(a: Sparse, b: Sparse, k: int) -> tuple[Sparse, Sparse]:
    """`merge` and what it dropped: kept + rest == a + b, entry for entry. An exact zero is in neither."""
    if not _compiled(a.value):
        largest, others = sparse_torch.merge_with_rest(a, b, _checked(k))
        return Sparse(*largest), Sparse(*others)
    room = a.index.numel() + b.index.numel() + 1
    index, total = np.empty(room, np.int32), np.empty(room, np.float32)
    n = kernels.add(*_arrays(a), *_arrays(b), index, total)
    # Rounded to the operands' precision before magnitudes are compared, since that is how the entries travel.
    value = torch.from_numpy(total[:n]).to(a.value.dtype)
    bits = value.float().view(torch.int32).numpy()
    if n <= _checked(k):
        return Sparse(torch.from_numpy(index[:n]), value), Sparse(a.index[:0], value[:0])
    rest_index, rest_bits = np.empty(n - k + 1, np.int32), np.empty(n - k + 1, np.int32)
    kernels.keep_largest(index[:n], bits, k, kernels.kth_largest(bits, k), rest_index, rest_bits)
    kept = _pairs(index[:k], bits[:k], value.dtype)
    return kept, _pairs(rest_index[:-1], rest_bits[:-1], value.dtype)


def outside(a: Sparse, b: Sparse) -> Sparse:
    """The entries of a whose index b does not hold."""
    if a.index.device.type != "cpu":
        position = (~torch.isin(a.index, b.index)).nonzero().squeeze(1)
    else:
        room = np.empty(a.index.numel() + 1, np.int32)
        n = kernels.outside(a.index.numpy(), b.index.numpy(), room)
        position = torch.from_numpy(room[:n])
    return Sparse(a.index[position], a.value[position])


def to_dense(sparse: Sparse, out: Tensor) -> Tensor:
    """Write the sparse vector into out [m], zeros elsewhere."""
    return add_sum([sparse], out.zero_())


def add_sum(vectors: list[Sparse], out: Tensor) -> Tensor:
    """out [m] += the sparse vectors, in the order of the list, so every rank gets the same bits."""
    for vector in vectors:
        out.index_add_(0, vector.index, vector.value.to(out.dtype))
    return out


def add_packed(rows: Tensor, dtype: torch.dtype, out: Tensor) -> Tensor:
    """`add_sum` of the vectors of `dtype` that are packed in the rows [P, bytes]."""
    if out.device.type == "cpu" and dtype == out.dtype == torch.float32:
        kernels.add_packed(rows.contiguous().view(torch.int32).numpy(), out.numpy(), PADDING)
        return out
    return add_sum([unpack(row, dtype) for row in rows], out)


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
    """The inverse of `pack` for values of `dtype`; views of the buffer."""
    k = buffer.numel() // (4 + dtype.itemsize)
    index = buffer[: 4 * k].view(torch.int32)
    value = buffer[4 * k :].view(dtype)
    if k and int(index[-1]) != PADDING:  # the common case, at no pass over the buffer
        return Sparse(index, value)
    n = int((index != PADDING).sum())
    return Sparse(index[:n], value[:n])


def _select(x: Tensor, gradient: Tensor | None, k: int, take: bool, dtype: torch.dtype) -> Sparse:
    """`kernels.select` from a threshold that a sample suggests, with room for the candidates."""
    vector = x.numpy()
    addend = NOTHING if gradient is None else gradient.numpy()
    room = min(vector.size, 2 * _checked(k)) + kernels.SLACK
    if not vector.size:
        return _pairs(np.empty(0, np.int32), np.empty(0, np.int32), dtype)
    index, bits = np.empty(room, np.int32), np.empty(room, np.int32)
    n = kernels.select(vector, addend, k, kernels.estimate(vector, addend, k), take, index, bits)
    return _pairs(index[:n].copy(), bits[:n].copy(), dtype)


def _arrays(sparse: Sparse) -> tuple[np.ndarray, np.ndarray]:
    return sparse.index.numpy(), sparse.value.float().numpy()


def _pairs(index: np.ndarray, bits: np.ndarray, dtype: torch.dtype) -> Sparse:
    return Sparse(torch.from_numpy(index), torch.from_numpy(bits).view(torch.float32).to(dtype))


def _compiled(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in COMPILED


def _checked(k: int) -> int:
    if k < 1:
        raise ValueError(f"k is {k}; it must be at least 1")
    return k
