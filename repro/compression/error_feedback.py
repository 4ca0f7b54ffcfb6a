"""Error feedback: what a rank's selection leaves out joins its next gradient (Alg. 1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.selectors import Selector, exact, named
from repro.sparse import Sparse, add_sum, take_largest


class ErrorFeedback:
    """The residual [m] of one rank, and the selector that takes entries out of it."""

    def __init__(self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact"):
        self.residual = torch.zeros(parameters, device=device)
        self.select: Selector = named(selector)
        self.selected = 0  # entries of the last selection: not k if the selector is approximate

    def accumulate_and_select(self, gradient: Tensor, k: int) -> Sparse:
        """residual += gradient; then about k of its largest entries leave the residual and are returned."""
        if self.select is exact:
            local = take_largest(self.residual, gradient, k)
        else:
            local = self.select(self.residual.add_(gradient), k)
            self.residual[local.index.long()] = 0
        self.selected = local.index.numel()
        return local

    def put_back(self, entries: Sparse) -> None:
        """Add entries that did not make it into the update to the residual."""
        add_sum([entries], self.residual)

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual.copy_(state["residual"])


class CompressionErrors:
    """What a codec lost on its way to the owners, [m], and back, [ceil(m/P)] of this rank's own chunk."""

    def __init__(self, parameters: int, device: torch.device | str = "cpu"):
        self.residual = torch.zeros(parameters, device=device)
        self.server_residual: Tensor | None = None  # its length depends on P, which the first step tells

    def of(self, size: int) -> tuple[Tensor, Tensor]:
        """Both, for `primitives.compressed_scatter_reduce` among `size` ranks."""
        if self.server_residual is None:
            self.server_residual = self.residual.new_zeros(-(-self.residual.numel() // size))
        return self.residual, self.server_residual

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual, "server_residual": self.server_residual}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual.copy_(state["residual"])
        server = state["server_residual"]
        self.server_residual = None if server is None else server.clone()
