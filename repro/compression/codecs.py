"""Codecs encode rows of floats as rows of bytes and decode them. Error feedback can keep what a codec loses.

Every row [n] becomes a row [codec.nbytes(n)] of uint8: for each bucket of entries a header, then its levels. A
bucket of zeros decodes to zeros, and magnitudes under 1.2e-38 (float32's smallest normal number) may do so too; a
bucket that holds an inf or a nan decodes to non-finite entries, so a diverging run is seen to diverge.

CPU tensors use the compiled loops of `codec_kernels.py`, other devices use torch's operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from repro.compression import codec_kernels

COMPILED = ("cpu",)
TINY = float(codec_kernels.TINY)  # the smallest divisor, used for a bucket of zeros


class Codec(Protocol):
    def encode(self, x: Tensor) -> Tensor:
        """Encodes floats x [rows, n] as uint8 [rows, nbytes(n)]."""
        ...

    def decode(self, wire: Tensor, n: int) -> Tensor:
        """Decodes uint8 [rows, nbytes(n)] to float32 [rows, n]."""
        ...

    def nbytes(self, n: int) -> int: ...


@dataclass(frozen=True)
class MinMax:
    """Quantises to 8 bits, 256 levels from a bucket's minimum to its maximum (BAGUA's MinMaxUInt8, arXiv:2107.01499).

    Zero is always one of the levels, as the range is stretched to hold it; BAGUA stretches by 1e-7 instead. An
    entry is off by at most one step, (max - min) / 255. `bucket` entries share a range; 0 means the whole row.
    """

    bucket: int = 0

    def encode(self, x: Tensor) -> Tensor:
        x = _buckets(x, self.bucket)
        if x.device.type in COMPILED:
            return _join(*_encoded(codec_kernels.minmax_encode, x, 2, 1))
        low, high = x.amin(2, keepdim=True).clamp(max=0), x.amax(2, keepdim=True).clamp(min=0)
        step = ((high - low) / 255).clamp(min=TINY)
        lowest = (high / step).round() - 255
        levels = ((x / step).round() - lowest).clamp(0, 255).to(torch.uint8)
        return _join(torch.cat([step, lowest], 2), levels)

    def decode(self, wire: Tensor, n: int) -> Tensor:
        header, levels = _part(wire, n, self.bucket, 2)
        if wire.device.type in COMPILED:
            return _row(_decoded(codec_kernels.minmax_decode, header, levels, 1), n)
        return _row((levels + header[..., 1:]) * header[..., :1], n)

    def nbytes(self, n: int) -> int:
        count, width = shape(n, self.bucket)
        return count * (8 + width)


@dataclass(frozen=True)
class QSGD:
    """Rounds to a sign and `2**(bits-1) - 1` levels of the bucket's norm at random (Alistarh et al., NeurIPS 2017).

    It is unbiased: the mean over many draws is x. An entry is off by less than norm / levels. `generator` belongs to
    this rank and lives on the device of x. The levels travel as they are, without the paper's Elias code.
    """

    generator: torch.Generator
    bits: int = 8  # or 4: two entries per byte
    bucket: int = 512
    norm: str = "max"  # or "l2"

    def encode(self, x: Tensor) -> Tensor:
        x, most = _buckets(x, self.bucket), 2 ** (self.bits - 1) - 1
        compiled = x.device.type in COMPILED
        norm = largest = x.new_empty(*x.shape[:2], 1) if compiled else x.abs().amax(2, keepdim=True)
        if compiled:
            _run(codec_kernels.largest, x, largest)
        if self.norm == "l2":  # of x / largest, as the squares of small entries would vanish
            norm = largest * torch.linalg.vector_norm(x / largest.clamp(min=TINY), dim=2, keepdim=True)
        noise = torch.empty_like(x).uniform_(generator=self.generator)
        if compiled:
            levels = torch.empty_like(x, dtype=torch.uint8)
            _run(partial(codec_kernels.qsgd_encode, most), norm, noise, x, levels)
        else:
            scaled = x / norm.clamp(min=TINY) * most
            levels = ((scaled + noise).floor().clamp(-most, most) + most).to(torch.uint8)  # 0 to 2 most
        if self.bits == 4:
            levels = levels[..., ::2] * 16 + levels[..., 1::2]
        return _join(norm, levels)

    def decode(self, wire: Tensor, n: int) -> Tensor:
        norm, levels = _part(wire, n, self.bucket, 1)
        if self.bits == 4:
            levels = torch.stack([levels >> 4, levels & 15], 3).flatten(2)
        most = 2 ** (self.bits - 1) - 1
        if wire.device.type in COMPILED:
            return _row(_decoded(partial(codec_kernels.qsgd_decode, most), norm, levels, 1), n)
        return _row((levels.float() - most) / most * norm, n)

    def nbytes(self, n: int) -> int:
        count, width = shape(n, self.bucket)
        return count * (4 + width * self.bits // 8)


@dataclass(frozen=True)
class Sign:
    """Keeps one bit, the sign, times the bucket's mean magnitude (Karimireddy et al., ICML 2019). Zero counts as +.

    It is biased: use it with error feedback. Zeros that pad a vector to P chunks are entries of its last one, and
    lessen their bucket's mean; error feedback makes up for that.
    """

    bucket: int = 1024

    def encode(self, x: Tensor) -> Tensor:
        n, x = x.shape[1], _buckets(x, self.bucket)
        if x.device.type in COMPILED:
            scale, levels = _encoded(codec_kernels.sign_encode, x, 1, 8)
        else:
            bits = (x >= 0).unflatten(2, (-1, 8)).to(torch.uint8) << torch.arange(8, device=x.device).to(torch.uint8)
            scale, levels = x.abs().mean(2, keepdim=True), bits.sum(3, dtype=torch.uint8)
        _, count, width = x.shape
        scale[:, -1] *= width / (n - (count - 1) * width)  # the last bucket's mean is not of padding
        return _join(scale, levels)

    def decode(self, wire: Tensor, n: int) -> Tensor:
        scale, packed = _part(wire, n, self.bucket, 1)
        if wire.device.type in COMPILED:
            return _row(_decoded(codec_kernels.sign_decode, scale, packed, 8), n)
        bits = (packed[..., None] >> torch.arange(8, device=wire.device).to(torch.uint8)) & 1
        return _row((bits.flatten(2).float() * 2 - 1) * scale, n)

    def nbytes(self, n: int) -> int:
        count, width = shape(n, self.bucket)
        return count * (4 + width // 8)


def shape(n: int, bucket: int) -> tuple[int, int]:
    """Returns how many buckets a row of n > 0 entries has, and the entries of each, a multiple of 8 (zero-padded)."""
    width = -(-min(n, bucket or n) // 8) * 8
    return -(-n // width), width


def _buckets(x: Tensor, bucket: int) -> Tensor:
    """Splits x [rows, n] into float32 buckets [rows, buckets, width], padded with zeros."""
    count, width = shape(x.shape[1], bucket)
    x, missing = x.float().contiguous(), count * width - x.shape[1]
    return (torch.nn.functional.pad(x, (0, missing)) if missing else x).unflatten(1, (count, width))


def _encoded(kernel: Callable[..., None], x: Tensor, floats: int, entries: int) -> tuple[Tensor, Tensor]:
    """Returns header [rows, buckets, floats] and levels [rows, buckets, width / entries], `entries` per byte."""
    *buckets, width = x.shape
    header, levels = x.new_empty(*buckets, floats), x.new_empty(*buckets, width // entries, dtype=torch.uint8)
    _run(kernel, x, header, levels)
    return header, levels


def _decoded(kernel: Callable[..., None], header: Tensor, levels: Tensor, entries: int) -> Tensor:
    """Inverts `_encoded`: returns float32 [rows, buckets, width]."""
    x = header.new_empty(*levels.shape[:2], levels.shape[2] * entries)
    _run(kernel, header, levels, x)
    return x


def _run(kernel: Callable[..., None], *tensors: Tensor) -> None:
    kernel(*(x.view(-1, x.shape[-1]).numpy() for x in tensors))


def _row(x: Tensor, n: int) -> Tensor:
    return x.flatten(1)[:, :n]


def _join(header: Tensor, levels: Tensor) -> Tensor:
    """Joins float32 [rows, buckets, h] and uint8 [rows, buckets, b] into uint8 [rows, buckets * (4 h + b)]."""
    return torch.cat([header.contiguous().view(torch.uint8), levels], 2).flatten(1)


def _part(wire: Tensor, n: int, bucket: int, floats: int) -> tuple[Tensor, Tensor]:
    """Inverts `_join` for rows of n entries."""
    count, _ = shape(n, bucket)
    wire = wire.unflatten(1, (count, -1))
    header = wire[..., : 4 * floats].clone(memory_format=torch.contiguous_format)
    return header.view(torch.float32), wire[..., 4 * floats :].contiguous()
