"""DeMo (Peng et al., arXiv:2411.19870): ranks keep momenta of their own, and share their largest DCT coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_gather
from repro.compression.chunks import pack_bits, unpack_bits
from repro.compression.error_feedback import rounded
from repro.compression.pair_sizes import words
from repro.compression.tiles import divide, tile_sizes


class Algorithm(algorithms.Algorithm):
    """Sends of each tile of the momentum the `top` largest coefficients, which then leave it; trainer's momentum is 0.

    `average=senders` divides a coefficient by the number of ranks that sent it, as the public code does, `nodes` by P.
    `sign` applies the sign of each entry, as the public code does; without it, and with `average=nodes` and `decay=1`,
    this is error feedback, and nothing is lost. The weight decay acts as the run's.

    Three differences from the public code: convolutions are matrices (it knows layers of one or two dimensions); the
    momentum adds up gradients, not gradients times the rate; and an index takes log2 of a tile's bits, not 64.
    Ranks agree to the bit if their machines multiply matrices alike, as all decode alone.
    """

    takes_shapes = True
    scales = True
    residual: Tensor

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        chunk: int = 64,
        top: int = 32,
        decay: float = 0.999,
        sign: bool = True,
        average: str = "senders",
        shapes: Sequence[Sequence[int]] | None = None,
    ):
        self.tiles, self.top = divide(parameters, shapes, chunk, device), top
        self.decay, self.sign = decay, sign
        self.by_senders = {"senders": True, "nodes": False}[average]
        # the momentum, less what was sent of it
        self.residual = torch.zeros(parameters, dtype=torch.float32, device=device)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        self.residual.mul_(self.decay).add_(gradient)
        total = torch.empty_like(self.residual)
        messages, sent = [], torch.empty_like(self.residual)
        for tiles in self.tiles:
            coefficients = tiles.transform(self.residual)
            top = min(self.top, tiles.size)
            index = coefficients.abs().topk(top).indices
            value = coefficients.gather(1, index)
            tiles.restore(torch.zeros_like(coefficients).scatter_(1, index, value), sent)
            codes = pack_bits(index.view(-1), (tiles.size - 1).bit_length())
            messages += [value.flatten().view(torch.int32), codes]
        self.residual -= sent
        gathered = collective.all_gather(torch.cat(messages)).split([part.numel() for part in messages], 1)
        for tiles, values, codes in zip(self.tiles, gathered[::2], gathered[1::2], strict=True):
            tiles.restore(
                self.mean(values.contiguous().view(torch.float32), codes, tiles.entry.shape[0], tiles.size), total
            )
        if not self.sign:
            return rounded(total, gradient, self.residual)
        return gradient.copy_(torch.where(total.isnan(), total, total.sign()))  # the sign of a NaN would be 0

    def mean(self, values: Tensor, codes: Tensor, count: int, size: int) -> Tensor:
        """Returns the mean coefficients [count, size] of what the ranks sent, added in rank order."""
        total = values.new_zeros(count, size)
        senders = torch.zeros_like(total)
        for value, code in zip(values, codes, strict=True):
            index = unpack_bits(code, (size - 1).bit_length(), value.numel()).view(count, -1).long()
            total.scatter_add_(1, index, value.view(count, -1))
            senders.scatter_add_(1, index, torch.ones_like(value).view(count, -1))
        return total / (senders.clamp(min=1) if self.by_senders else len(values))

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual.copy_(state["residual"])

    @staticmethod
    def cost(
        size: int,
        parameters: int,
        k: int,
        chunk: int = 64,
        top: int = 32,
        shapes: Sequence[Sequence[int]] | None = None,
        **others: Any,
    ) -> Cost:
        parts = [(count * min(top, n), (n - 1).bit_length()) for count, n in tile_sizes(parameters, shapes, chunk)]
        return all_gather(size, 4 * sum(n + words(n * bits) for n, bits in parts))
