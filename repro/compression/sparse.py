"""Sparse vectors as (index, value) pairs: exact top-k selection and the paper's merge (Definition 1).

On a CPU, float32, bfloat16 and float16 (the last two as float32, which holds them exactly) use the compiled loops of
`sparse_kernels.py`; everything else, CUDA included, uses torch operators. Both give the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from repro.compression import sparse_kernels, sparse_torch

PADDING = torch.iinfo(torch.int32).max  # the index of places that a packed vector of fewer than k entries leaves empty
NOTHING = np.empty(0, np.float32)
COMPILED = (torch.float32, torch.bfloat16, torch.float16)


class Sparse(NamedTuple):
    """Holds the non-zero entries of a vector: index int32 [n], ascending and without duplicates; value [n]."""

    index: Tensor  # type: ignore[assignment]  # shadows tuple.index
    value: Tensor


def check_indices(parameters: int) -> None:
    """Raises ValueError where an int32 cannot tell so many entries apart, or has none left for PADDING."""
    if parameters > PADDING:
        raise ValueError(
            f"{parameters:,} entries are too many for one selection: an index has 32 bits, which tell "
            f"{PADDING:,} apart. Select from parts of the gradient (bucket_mb=25 scope=bucket), or send all of it "
            "(algo=dense)"
        )


def select(x: Tensor, k: int) -> Sparse:
    """Returns exactly the k entries of x [m] with the largest magnitude; ties go to the smaller index.

    Zeros are never selected, so fewer than k are returned if x has fewer non-zeros. NaN counts as the largest. Raises
    ValueError where m does not fit an int32, or k is below 1.
    """
    check_indices(x.numel())
    if not _compiled(x):
        return Sparse(*sparse_torch.select(x, _checked(k)))
    return _select(x.detach().float().contiguous(), None, k, take=False, dtype=x.dtype)


def take_largest(residual: Tensor, gradient: Tensor, k: int) -> Sparse:
    """Adds the gradient to the residual and moves its k largest entries out, in one pass over both [m]."""
    if _compiled(residual) and gradient.dtype == residual.dtype == torch.float32:
        return _select(residual, gradient, k, take=True, dtype=residual.dtype)
    local = select(residual.add_(gradient), k)
    residual[local.index.long()] = 0
    return local


def merge(a: Sparse, b: Sparse, k: int) -> Sparse:
    """Returns the k entries of a + b with the largest magnitude; the order of a and b does not change the bits.

    Raises ValueError where k is below 1.
    """
    return merge_with_rest(a, b, k)[0]


def merge_with_rest(a: Sparse, b: Sparse, k: int) -> tuple[Sparse, Sparse]:
    """Returns `merge` and what it drops: kept + rest == a + b, entry for entry. An exact zero is in neither."""
    if not _compiled(a.value):
        largest, others = sparse_torch.merge_with_rest(a, b, _checked(k))
        return Sparse(*largest), Sparse(*others)
    room = a.index.numel() + b.index.numel() + 1
    index, total = np.empty(room, np.int32), np.empty(room, np.float32)
    n = sparse_kernels.add(*_arrays(a), *_arrays(b), index, total)
    # Rounded to the operands' precision before magnitudes are compared, since that is how the entries travel.
    value = torch.from_numpy(total[:n]).to(a.value.dtype)
    bits = value.float().view(torch.int32).numpy()
    if n <= _checked(k):
        return Sparse(torch.from_numpy(index[:n]), value), Sparse(a.index[:0], value[:0])
    rest_index, rest_bits = np.empty(n - k + 1, np.int32), np.empty(n - k + 1, np.int32)
    sparse_kernels.keep_largest(index[:n], bits, k, sparse_kernels.kth_largest(bits, k), rest_index, rest_bits)
    kept = _pairs(index[:k], bits[:k], value.dtype)
    return kept, _pairs(rest_index[:-1], rest_bits[:-1], value.dtype)


def outside(a: Sparse, b: Sparse) -> Sparse:
    """Returns the entries of a whose index is not in b."""
    if a.index.device.type != "cpu":
        position = sparse_torch.outside(a.index, b.index)
    else:
        room = np.empty(a.index.numel() + 1, np.int32)
        n = sparse_kernels.outside(a.index.numpy(), b.index.numpy(), room)
        position = torch.from_numpy(room[:n])
    return Sparse(a.index[position], a.value[position])


def inside(a: Sparse, b: Sparse) -> Sparse:
    """Returns the entries of a whose index is in b."""
    return outside(a, outside(a, b))


def to_dense(sparse: Sparse, out: Tensor) -> Tensor:
    """Writes the sparse vector into out [m], with zeros elsewhere."""
    return add_sum([sparse], out.zero_())


def add_sum(vectors: list[Sparse], out: Tensor) -> Tensor:
    """Adds the sparse vectors to out [m], in the order of the list, so every rank gets the same bits."""
    for vector in vectors:
        out.index_add_(0, vector.index, vector.value.to(out.dtype))
    return out


def add_packed(rows: Tensor, dtype: torch.dtype, out: Tensor) -> Tensor:
    """Adds to out [m] the vectors of `dtype` that are packed in the rows [P, bytes], as `add_sum` does."""
    if out.device.type == "cpu" and dtype == out.dtype == torch.float32:
        sparse_kernels.add_packed(rows.contiguous().view(torch.int32).numpy(), out.numpy(), PADDING)
        return out
    return add_sum([unpack(row, dtype) for row in rows], out)


def pack(sparse: Sparse, k: int) -> Tensor:
    """Returns the message uint8 [k * (4 + itemsize)]: k indices, then k values, both padded.

    Raises ValueError where there are more than k.
    """
    n = sparse.index.numel()
    if n > k:
        raise ValueError(f"{n} entries do not fit into a packed vector of {k}")
    index = sparse.index.new_full((k,), PADDING)
    value = sparse.value.new_zeros(k)
    index[:n] = sparse.index
    value[:n] = sparse.value
    return torch.cat([index.view(torch.uint8), value.view(torch.uint8)])


def unpack(buffer: Tensor, dtype: torch.dtype) -> Sparse:
    """Inverts `pack` for values of `dtype`; returns views of the buffer, or copies of what does not lie on its grid."""
    k = buffer.numel() // (4 + dtype.itemsize)
    index, value = _typed(buffer[: 4 * k], torch.int32), _typed(buffer[4 * k :], dtype)
    if k and int(index[-1]) != PADDING:  # the common case, found without a pass over the buffer
        return Sparse(index, value)
    n = int((index != PADDING).sum())
    return Sparse(index[:n], value[:n])


def _typed(part: Tensor, dtype: torch.dtype) -> Tensor:
    """Views bytes as `dtype`. With an odd k a row of 16-bit values, or values of 64 bits, may begin within a word."""
    return (part.clone() if part.storage_offset() % dtype.itemsize else part).view(dtype)


def _select(x: Tensor, gradient: Tensor | None, k: int, take: bool, dtype: torch.dtype) -> Sparse:
    """Runs `sparse_kernels.select` from a threshold that a sample suggests, with room for the candidates."""
    vector = x.numpy()
    addend = NOTHING if gradient is None else gradient.numpy()
    room = min(vector.size, 2 * _checked(k)) + sparse_kernels.SLACK
    if not vector.size:
        return _pairs(np.empty(0, np.int32), np.empty(0, np.int32), dtype)
    index, bits = np.empty(room, np.int32), np.empty(room, np.int32)
    n = sparse_kernels.select(vector, addend, k, sparse_kernels.estimate(vector, addend, k), take, index, bits)
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
