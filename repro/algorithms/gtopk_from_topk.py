"""k chosen from the gathered k x P entries: the paper's first experiment, which shows that most of them are not needed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from repro.collective import Collective
from repro.schedule import entries
from repro.sparse import add_sum, pack, select, to_dense, unpack


class Algorithm:
    density = 0.001

    def __init__(self, parameters: int, device: torch.device | str = "cpu", selector: str = "exact"):
        self.residual = torch.zeros(parameters, device=device)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        k = entries(self.density, gradient.numel())
        self.residual += gradient
        local = select(self.residual, k)
        self.residual[local.index] = 0
        gathered = collective.all_gather(pack(local, k))
        summed = add_sum([unpack(row, local.value.dtype) for row in gathered], gradient.zero_())
        total = select(summed, k)
        out = ~torch.isin(local.index, total.index)  # not among the final k: put back, whole, so nothing is lost
        self.residual[local.index[out]] = local.value[out]
        return to_dense(total, out=gradient).div_(collective.size)

    def state_dict(self) -> dict[str, Any]:
        return {"residual": self.residual}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.residual.copy_(state["residual"])
