"""Repeats the functions of `pair_kernels.py` in torch operators, for any device: same arguments, same bits."""

from __future__ import annotations

import torch
from torch import Tensor

from repro.compression.codecs import TINY
from repro.compression.pair_kernels import MAGNITUDE, NOT_A_NUMBER
from repro.compression.pair_sizes import BLOCK, CODE_BITS, blocks

LEVEL_BITS, LEVEL = 6, 63


def put(codes: Tensor, width: int, words: Tensor) -> None:
    bits = (codes[:, None] >> torch.arange(width, device=codes.device)) & 1
    _join(bits.flatten(), words)


def get(words: Tensor, width: int, codes: Tensor) -> None:
    bits = _bits(words)[: codes.numel() * width].view(codes.numel(), width)
    codes.copy_((bits << torch.arange(width, device=words.device)).sum(1))


def put_index(index: Tensor, width: int, parameters: int, words: Tensor, low: int, steps: int) -> bool:
    if index.numel() and (int(index[0]) < 0 or int(index[-1]) >= parameters or bool((index.diff() < 1).any())):
        return False
    bits = torch.zeros(32 * (words.numel() - steps), dtype=torch.int64, device=index.device)
    bits[(index >> width) + torch.arange(index.numel(), device=index.device)] = 1
    _join(bits, words[steps:])
    put(index, width, words[low:])
    return True


def get_index(words: Tensor, low: int, steps: int, width: int, k: int, index: Tensor) -> int:
    ones = _bits(words[steps:]).nonzero().squeeze(1)[:k]
    n = ones.numel()
    get(words[low:], width, index[:n])
    index[:n] += (ones - torch.arange(n, device=ones.device)).int() << width
    return n


def put_blocks(value: Tensor, words: Tensor, first: int, received: Tensor) -> None:
    ends, codes = _ends(words, value.numel()), torch.empty_like(value, dtype=torch.int32)
    to_levels(value, ends, codes)
    put(codes, CODE_BITS, words[first:])
    from_levels(ends, codes, received)


def get_blocks(words: Tensor, first: int, value: Tensor) -> None:
    codes = torch.empty_like(value, dtype=torch.int32)
    get(words[first:], CODE_BITS, codes)
    from_levels(_ends(words, value.numel()), codes, value)


def _ends(words: Tensor, n: int) -> Tensor:
    return words[: blocks(n)].view(torch.int16).view(-1, 2)


def to_levels(value: Tensor, ends: Tensor, codes: Tensor) -> None:
    missing = ends.shape[0] * BLOCK - value.numel()
    bits = value.view(torch.int32) & int(MAGNITUDE)
    least = torch.nn.functional.pad(bits, (0, missing), value=int(MAGNITUDE)).view(-1, BLOCK).amin(1)
    largest = torch.nn.functional.pad(bits, (0, missing)).view(-1, BLOCK).amax(1).clamp(max=int(NOT_A_NUMBER))
    ends.copy_(torch.stack([least >> 16, (largest + 0xFFFF) >> 16], 1))
    start, stop, step = _scales(ends, value.numel())
    level = ((value.abs() - start) / step).round().clamp(max=LEVEL).int()
    codes.copy_(torch.where(stop < torch.inf, level + (torch.signbit(value).int() << LEVEL_BITS), 0))


def from_levels(ends: Tensor, codes: Tensor, value: Tensor) -> None:
    start, _, step = _scales(ends, codes.numel())
    magnitude = start + (codes & LEVEL).float() * step
    value.copy_(torch.where(codes > LEVEL, -magnitude, magnitude))


def _scales(ends: Tensor, n: int) -> list[Tensor]:
    """Returns, for each value, its block's smallest and largest magnitude and the distance between levels."""
    start, stop = (ends.int() << 16).view(torch.float32).unbind(1)
    # by a tensor: CUDA multiplies by the reciprocal of a number, which rounds otherwise
    step = ((stop - start) / stop.new_tensor(LEVEL)).clamp(min=TINY)
    return [scale.repeat_interleave(BLOCK)[:n] for scale in (start, stop, step)]


def _bits(words: Tensor) -> Tensor:
    return ((words[:, None].long() >> torch.arange(32, device=words.device)) & 1).flatten()


def _join(bits: Tensor, words: Tensor) -> None:
    """Fills as many words as the bits need, and the rest of the last one with zeros."""
    rows = torch.nn.functional.pad(bits, (0, -bits.numel() % 32)).view(-1, 32).long()
    unsigned = (rows << torch.arange(32, device=words.device)).sum(1)
    words[: rows.shape[0]] = torch.where(unsigned >= 2**31, unsigned - 2**32, unsigned)
