"""Defines how sparse pairs travel: `algo.wire=pairs|gaps|gaps-bf16|packed`.

    format     index        value                                      bytes a pair at density 0.001, float32
    pairs      int32        as it is                                   8
    gaps       Elias-Fano   as it is                                   5.5
    gaps-bf16  Elias-Fano   bfloat16, to the nearest                   3.5
    packed     Elias-Fano   sign and 6 bits within blocks of 64        2.44

The size of a message follows from k, m and the values' type, so both ends know it; a code whose length depends on
the data (Rice codes, 16-bit gaps with an escape) would need one more round to send the length. Elias-Fano (Elias, 1974)
keeps the low bits of each index as they are and writes the gaps between the high parts in unary: k ones and at most
m / 2^low zeros, whatever was selected. At density 0.001 that is 11.95 bits per index; the entropy of a random
selection is 11.4, and Rice codes take 11.5 on average and at worst no fewer than Elias-Fano. n < k entries are n
ones, so no count is sent either.

A message is: values, low bits, unary gaps; each begins at a multiple of 4 bytes. CPU tensors use the compiled loops of
`pair_kernels.py`, other devices the torch operators of `pair_torch.py`; both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from repro.compression import pair_kernels, pair_torch
from repro.compression.pair_kernels import OCTET
from repro.compression.pair_sizes import (
    block_bytes,
    blocks,
    float_bytes,
    gap_bytes,
    index_words,
    low_bits,
    message_bytes,
)  # fmt: skip
from repro.compression.sparse import Sparse, add_packed, add_sum, pack, unpack

COMPILED = ("cpu",)


class Encoded(NamedTuple):
    """Holds wire, uint8 [nbytes], and received, what every rank decodes from it: the input if nothing is lost."""

    wire: Tensor
    received: Sparse


class Format(Protocol):
    """Encodes up to k pairs as one message; indices ascend from 0 to below `parameters`, without duplicates."""

    def nbytes(self, k: int, parameters: int, dtype: torch.dtype) -> int:
        """Returns the size of a message, which is the same however many of the k pairs there are."""
        ...

    def encode(self, sparse: Sparse, k: int, parameters: int) -> Encoded: ...

    def decode(self, wire: Tensor, k: int, parameters: int, dtype: torch.dtype) -> Sparse:
        """Inverts `encode` for values of `dtype`; the result may be views of the wire."""
        ...

    def add(self, rows: Tensor, k: int, parameters: int, dtype: torch.dtype, out: Tensor) -> Tensor:
        """Adds the messages in rows [P, nbytes] to out [m], in row order, so every rank gets the same bits."""
        ...


def lost(sparse: Sparse, received: Sparse) -> Sparse:
    """Returns what rounding took from each value, for exactly one rank's residual; empty if nothing was lost."""
    if received is sparse:
        return Sparse(sparse.index[:0], sparse.value[:0])
    return Sparse(sparse.index, sparse.value - received.value)


class Pairs:
    """Sends k indices and then k values, as `sparse.pack` lays them out."""

    def nbytes(self, k: int, parameters: int, dtype: torch.dtype) -> int:
        return message_bytes("pairs", k, parameters, dtype.itemsize)

    def encode(self, sparse: Sparse, k: int, parameters: int) -> Encoded:
        return Encoded(pack(sparse, k), sparse)

    def decode(self, wire: Tensor, k: int, parameters: int, dtype: torch.dtype) -> Sparse:
        return unpack(wire, dtype)

    def add(self, rows: Tensor, k: int, parameters: int, dtype: torch.dtype, out: Tensor) -> Tensor:
        return add_packed(rows, dtype, out)


class Values(Protocol):
    """Encodes n <= k values in `nbytes` bytes, a multiple of 4, at the front of a message's int32 words."""

    def nbytes(self, k: int, dtype: torch.dtype) -> int: ...

    def encode(self, value: Tensor, k: int, words: Tensor) -> Tensor:
        """Fills the zeroed words and returns what is decoded from them: `value` itself if nothing is lost."""
        ...

    def decode(self, words: Tensor, k: int, n: int, dtype: torch.dtype) -> Tensor: ...


@dataclass(frozen=True)
class Floats:
    """Rounds values to the float type `travels_as`; None sends them as they are."""

    travels_as: torch.dtype | None = None

    def nbytes(self, k: int, dtype: torch.dtype) -> int:
        return float_bytes(k, (self.travels_as or dtype).itemsize)

    def encode(self, value: Tensor, k: int, words: Tensor) -> Tensor:
        floats = value.to(self.travels_as or value.dtype)
        words[: self.nbytes(k, value.dtype) // 4].view(floats.dtype)[: floats.numel()] = floats
        return floats.to(value.dtype)

    def decode(self, words: Tensor, k: int, n: int, dtype: torch.dtype) -> Tensor:
        return words[: self.nbytes(k, dtype) // 4].view(self.travels_as or dtype)[:n].to(dtype)


class Blocks:
    """Quantises 64 values at a time to a sign and 64 levels from their least to their largest magnitude: 7.5 bits each.

    No entry of a selection is near zero, so levels between both ends lie closer than levels from zero. The ends are
    bfloat16, rounded outward. A value is off by at most 1/126 of the distance between its block's ends. A block with
    an infinite end or a nan decodes to nan, so a diverging run is seen to diverge. Seven bits for the levels
    would make a pair 2.56 bytes at density 0.001.
    """

    def nbytes(self, k: int, dtype: torch.dtype) -> int:
        return block_bytes(k)

    def encode(self, value: Tensor, k: int, words: Tensor) -> Tensor:
        received = torch.empty_like(value, dtype=torch.float32)
        _run(pair_kernels.put_blocks, pair_torch.put_blocks, value.float(), words, blocks(k), received)
        return received.to(value.dtype)

    def decode(self, words: Tensor, k: int, n: int, dtype: torch.dtype) -> Tensor:
        value = words.new_empty(n, dtype=torch.float32)
        _run(pair_kernels.get_blocks, pair_torch.get_blocks, words, blocks(k), value)
        return value.to(dtype)


@dataclass(frozen=True)
class Gaps:
    """Sends the values, then the indices as Elias-Fano codes."""

    values: Values

    def nbytes(self, k: int, parameters: int, dtype: torch.dtype) -> int:
        return gap_bytes(self.values.nbytes(k, dtype), k, parameters, dtype.itemsize)

    def encode(self, sparse: Sparse, k: int, parameters: int) -> Encoded:
        index, value = sparse
        if index.numel() > k:
            raise ValueError(f"{index.numel()} entries do not fit into a message of {k}")
        wire = value.new_zeros(self.nbytes(k, parameters, value.dtype), dtype=torch.uint8)
        words, low, steps = self._split(wire, k, parameters, value.dtype)
        width = low_bits(k, parameters)
        if not _run(pair_kernels.put_index, pair_torch.put_index, index, width, parameters, words, low, steps):
            raise ValueError(f"indices must ascend, without duplicates, from 0 or more to less than {parameters}")
        received = self.values.encode(value, k, words)
        return Encoded(wire, sparse if received is value else Sparse(index, received))

    def decode(self, wire: Tensor, k: int, parameters: int, dtype: torch.dtype) -> Sparse:
        words, low, steps = self._split(wire, k, parameters, dtype)
        index = words.new_empty(k + OCTET)
        width = low_bits(k, parameters)
        n = _run(pair_kernels.get_index, pair_torch.get_index, words, low, steps, width, k, index)
        return Sparse(index[:n], self.values.decode(words, k, n, dtype))

    def add(self, rows: Tensor, k: int, parameters: int, dtype: torch.dtype, out: Tensor) -> Tensor:
        return add_sum([self.decode(row, k, parameters, dtype) for row in rows], out)

    def _split(self, wire: Tensor, k: int, parameters: int, dtype: torch.dtype) -> tuple[Tensor, int, int]:
        """Returns the wire as int32 words, which begin with the values, and where the low bits and the gaps begin."""
        size = self.nbytes(k, parameters, dtype)
        if wire.numel() != size:
            raise ValueError(f"a message of {wire.numel()} bytes cannot hold {k} of {parameters}: that takes {size}")
        values = self.values.nbytes(k, dtype) // 4
        return wire.view(torch.int32), values, values + index_words(k, parameters)[0]


FORMATS: dict[str, Format] = {
    "pairs": Pairs(), "gaps": Gaps(Floats()), "gaps-bf16": Gaps(Floats(torch.bfloat16)), "packed": Gaps(Blocks())
}  # fmt: skip


def named(name: str) -> Format:
    if name not in FORMATS:
        raise ValueError(f"no wire format is called {name!r}; type algo.wire={'|'.join(FORMATS)}")
    return FORMATS[name]


def _run(kernel: Callable[..., Any], operators: Callable[..., Any], *arguments: Any) -> Any:
    """Runs the compiled loop on CPU tensors, and the same function in torch's operators on other devices."""
    if arguments[0].device.type in COMPILED:  # that of all
        return kernel(*(x.numpy() if isinstance(x, Tensor) else x for x in arguments))
    return operators(*arguments)
