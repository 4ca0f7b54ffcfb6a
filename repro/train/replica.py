"""Holds one rank's copy of the network, with all parameters and all gradients as one flat vector each."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from repro.models import _carried

ForwardState = tuple[list[Tensor], list[list[Tensor]]]


class Replica:
    """A network whose parameters, and their `.grad`, are views into `parameters` [m] and `gradient` [m].

    Backward therefore writes straight into the vector that the algorithm reads, and one SGD step over one flat tensor
    moves all layers. Momentum is applied after aggregation, as in the paper; weight decay too.
    """

    def __init__(self, model: nn.Module, momentum: float, weight_decay: float, decay_of: str = "all"):
        """`decay_of`: all | weights, which are the parameters of two dimensions or more."""
        self.model = model
        layers = list(model.parameters())
        self.parameters = nn.Parameter(torch.cat([layer.detach().reshape(-1) for layer in layers]))
        self.gradient = torch.zeros_like(self.parameters, requires_grad=False)
        start = 0
        for layer in layers:
            span = slice(start, start + layer.numel())
            layer.data = self.parameters.data[span].view_as(layer)
            layer.grad = self.gradient[span].view_as(layer)
            start = span.stop
        self.momentum, self.weight_decay = momentum, weight_decay
        self.velocity = torch.zeros_like(self.gradient)
        self.decays: Tensor | None = None  # [m], 1 where a parameter decays; None: all do
        if decay_of == "weights":
            self.decays = torch.cat([torch.full_like(layer.detach().reshape(-1), layer.dim() > 1) for layer in layers])

    @torch.no_grad()
    def apply(self, update: Tensor, lr: float) -> None:
        """Takes one SGD step with the averaged `update` [m].

        It equals torch.optim.SGD on the flat vector, which would allocate m entries per step and at its first use
        import torch's compiler: seconds at every start.
        """
        self.velocity.mul_(self.momentum).add_(update)
        if self.decays is None:
            self.velocity.add_(self.parameters, alpha=self.weight_decay)
        else:
            self.velocity.addcmul_(self.parameters, self.decays, value=self.weight_decay)
        self.parameters.add_(self.velocity, alpha=-lr)

    def statistics(self) -> list[Tensor]:
        """Returns BatchNorm's running means and variances: this rank's own, never part of the update."""
        return [buffer for buffer in self.model.buffers() if buffer.is_floating_point()]

    def forward_state(self) -> ForwardState:
        """Returns a copy of what forward passes change: BatchNorm's statistics, and what recurrent layers carry."""
        return [buffer.clone() for buffer in self.statistics()], _carried.states(self.model)

    def put_back(self, state: ForwardState) -> None:
        """Undoes what forward passes changed since `forward_state` returned `state`."""
        statistics, carried = state
        for buffer, value in zip(self.statistics(), statistics, strict=True):
            buffer.copy_(value)
        _carried.put(self.model, carried)

    def digest(self) -> int:
        """Returns 63 bits that differ when any bit of the parameters does."""
        data = self.parameters.detach().cpu().numpy().data
        return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") >> 1

    def state_dict(self) -> dict[str, Tensor]:
        return {"parameters": self.parameters.detach(), "velocity": self.velocity}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.parameters.data.copy_(state["parameters"])
        self.velocity.copy_(state["velocity"])
