"""Error feedback: entries that a rank does not select are added to its next gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.compression.selectors import Selector, exact, named
from repro.compression.sparse import Sparse, add_sum, check_indices, take_largest, to_dense


class ErrorFeedback:
    """Holds the residual [m] of one rank and the selector that takes entries out of it.

    Raises ValueError where m does not fit an index: all that selects from a gradient does it here.
    """

    def __init__(self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact"):
        check_indices(parameters)
        self.residual = torch.zeros(parameters, dtype=torch.float32, device=device)
        self.server_residual: Tensor | None = None  # no rank keeps anything for others
        self.select: Selector = named(selector)
        self.chosen = torch.empty(0, dtype=torch.int32, device=device)  # indices of the last selection
        self.selected = 0  # its size; an approximate selector may return fewer than k

    def accumulate_and_select(self, gradient: Tensor, k: int) -> Sparse:
        """Adds the gradient to the residual, then removes about k of its largest entries and returns them."""
        if self.select is exact:
            local = take_largest(self.residual, gradient, k)
        else:
            local = self.select(self.residual.add_(gradient), k)
            self.residual[local.index.long()] = 0
        self.chosen, self.selected = local.index, local.index.numel()
        return local

    def put_back(self, entries: Sparse) -> None:
        """Adds entries that are not in the update to the residual."""
        add_sum([entries], self.residual)

    def average(self, total: Sparse, size: int, out: Tensor) -> Tensor:
        """Writes total / P into out [m], the update; what a bfloat16 rounds away there stays, as in `rounded`."""
        mean = Sparse(total.index, total.value / size)
        to_dense(Sparse(mean.index, narrowed(mean.value, out.dtype)), out)
        if out.dtype.itemsize < mean.value.itemsize:
            self.put_back(Sparse(mean.index, mean.value - out[mean.index.long()].to(mean.value.dtype)))
        return out

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual.copy_(state["residual"])


def rounded(mean: Tensor, out: Tensor, residual: Tensor) -> Tensor:
    """Writes the mean [m] into out [m], the update. A bfloat16 gradient would lose 0.1 % of it by rounding.

    Every rank keeps the difference in its residual: P times the difference is what the update lacks of the sum.
    """
    out.copy_(narrowed(mean, out.dtype))
    if out.dtype.itemsize < mean.itemsize:
        residual += mean - out
    return out


def narrowed(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns `values` in `dtype`; in a narrower one those beyond its range are its largest: the rest is then finite.

    A residual that took an infinite one would give NaN in the next step. What is infinite or NaN already stays so.
    """
    if dtype.itemsize >= values.itemsize:
        return values.to(dtype)
    most = torch.finfo(dtype).max
    return values.clamp(-most, most).where(values.isfinite(), values).to(dtype)


class CompressionErrors:
    """Keeps what a codec loses on the way to the owners, [m], and back, [ceil(m/P)] of this rank's own chunk."""

    selected, chosen = None, None  # it sends all entries

    def __init__(self, parameters: int, device: torch.device | str = "cpu"):
        self.residual = torch.zeros(parameters, dtype=torch.float32, device=device)
        self.server_residual: Tensor | None = None  # made in the first step, as its length depends on P

    def of(self, size: int) -> tuple[Tensor, Tensor]:
        """Returns both residuals, as `primitives.compressed_scatter_reduce` among `size` ranks takes them."""
        if self.server_residual is None:
            self.server_residual = self.residual.new_zeros(-(-self.residual.numel() // size))
        return self.residual, self.server_residual

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual, "server_residual": self.server_residual}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual.copy_(state["residual"])
        server = state["server_residual"]
        self.server_residual = None if server is None else server.to(self.residual.device, copy=True)
