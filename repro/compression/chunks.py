"""Packs what is selected within chunks: small indices and 2-bit values in as many bits as they need.

These are the messages of SparseLoCo and DeMo, whose chunks all send equally many entries: an index within a chunk of
4,096 is 12 bits. Each function also runs on the meta device, where sizes alone are wanted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from repro.compression import pair_kernels, pair_torch
from repro.compression.pair_sizes import words

LEVEL_BITS = 2


def pack_bits(codes: Tensor, width: int) -> Tensor:
    """Packs codes [n] below 2^width, one after the other; returns int32 [ceil(n * width / 32)]."""
    packed = codes.new_zeros(words(codes.numel() * width), dtype=torch.int32)
    codes = codes.int().contiguous()
    if packed.device.type == "cpu":
        pair_kernels.put(codes.numpy(), width, packed.numpy())
    else:
        pair_torch.put(codes, width, packed)
    return packed


def unpack_bits(packed: Tensor, width: int, n: int) -> Tensor:
    """Inverts `pack_bits`: returns int32 [n]."""
    codes = packed.new_zeros(n)
    if width and packed.device.type == "cpu":
        followed = torch.cat([packed, packed.new_zeros(1)])  # the loop reads two words at a time
        pair_kernels.get(followed.numpy(), width, codes.numpy())
    elif width:
        pair_torch.get(packed, width, codes)
    return codes


def two_bits(value: Tensor) -> tuple[Tensor, Tensor]:
    """Quantises each row of value [rows, k] to a sign and one of two magnitudes; returns scales [rows, 2], codes.

    The magnitudes are the means of those below the row's mean magnitude and of the others, which minimises the
    squared error of that split. A row of one magnitude loses nothing but rounding. Codes int32 [rows, k]: the low bit
    is the magnitude, the high bit the sign. A row with an inf or a nan decodes to non-finite values.
    """
    magnitude = value.abs()
    large = magnitude >= magnitude.mean(1, keepdim=True)
    count = torch.stack([(~large).sum(1), large.sum(1)], 1).clamp(min=1)
    scales = torch.stack([torch.where(large, 0, magnitude).sum(1), torch.where(large, magnitude, 0).sum(1)], 1) / count
    return scales, large.int() + 2 * (value < 0).int()


def from_two_bits(scales: Tensor, codes: Tensor) -> Tensor:
    """Inverts `two_bits`, but for what it loses: returns float32 [rows, k]."""
    magnitude = scales.gather(1, (codes & 1).long())
    return torch.where(codes > 1, -magnitude, magnitude)


class ChunkTopK:
    """Sends, of each chunk of a vector [m], the `top` largest entries, each as an index and a 2-bit value.

    Zeros pad the last chunk; where it has fewer than `top` entries some are sent, and lessen its scale.
    A message is uint8: two float32 scales a chunk, then the codes of all chunks, `index * 4 + level`.
    """

    def __init__(self, parameters: int, chunk: int, top: int):
        self.parameters, self.chunk = parameters, min(chunk, parameters)
        self.rows, self.top = -(-parameters // self.chunk), min(top, self.chunk)
        self.width = LEVEL_BITS + (self.chunk - 1).bit_length()

    @property
    def nbytes(self) -> int:
        return 8 * self.rows + 4 * words(self.rows * self.top * self.width)

    def encode(self, x: Tensor) -> Tensor:
        rows = torch.nn.functional.pad(x, (0, self.rows * self.chunk - self.parameters)).view(self.rows, self.chunk)
        index = rows.abs().topk(self.top).indices.sort().values
        scales, levels = two_bits(rows.gather(1, index))
        codes = pack_bits((index.int() * 2**LEVEL_BITS + levels).view(-1), self.width)
        return torch.cat([scales.view(-1).view(torch.uint8), codes.view(torch.uint8)])

    def decode(self, message: Tensor) -> Tensor:
        """Returns float32 [m], with zeros where nothing was sent."""
        scales = message[: 8 * self.rows].view(torch.float32).view(self.rows, 2)
        packed = message[8 * self.rows :].view(torch.int32)
        codes = unpack_bits(packed, self.width, self.rows * self.top).view(self.rows, self.top)
        value = from_two_bits(scales, codes % 2**LEVEL_BITS)
        dense = value.new_zeros(self.rows, self.chunk).scatter_(1, (codes >> LEVEL_BITS).long(), value)
        return dense.view(-1)[: self.parameters]
