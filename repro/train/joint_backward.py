"""Ranks that share a GPU compute their gradients in one pass over all their batches (torch.func).

A small network is bound by the launches of its kernels: ranks that take turns launch them once each, from threads of
one interpreter. Here rank 0 launches them for all, with the ranks as one more dimension. The parameters are alike on
all ranks, so a convolution runs on all their images at once; gradients and BatchNorm's statistics stay each rank's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from repro.train.replica import Replica

if TYPE_CHECKING:
    from repro.comm.collective import Collective

Handed = tuple[Replica, Tensor, Tensor]  # images [B, 3, H, W], labels [B]


class JointBackward:
    """Holds what the threads of one process hand to each other; all ranks share one."""

    def __init__(self, size: int):
        self.handed: list[Handed | None] = [None] * size
        self.buffers: dict[str, Tensor] | None = None
        self.losses = torch.empty(0)

    def backward(self, mine: Handed, share: float, control: Collective) -> Tensor:
        """Computes each rank's gradient of `share` times its mean loss; returns that of this rank. Collective.

        The gradient is added to `replica.gradient`; what is returned is the product of `share` and the loss.
        """
        self.handed[control.rank] = mine
        control.barrier()
        if control.rank == 0:
            handed = [one for one in self.handed if one is not None]
            if self.buffers is None:
                self.buffers = stacked([replica for replica, _, _ in handed])
            self.losses = backward(handed, self.buffers, share)
        control.barrier()  # if rank 0 failed, it has disconnected by now
        return self.losses[control.rank]


def stacked(replicas: list[Replica]) -> dict[str, Tensor]:
    """Stacks each buffer of all replicas as [P, ...] and makes theirs views into it: no copies at every step."""
    everyones = [dict(replica.model.named_buffers()) for replica in replicas]
    stacks = {name: torch.stack([buffers[name] for buffers in everyones]) for name in everyones[0]}
    for number, replica in enumerate(replicas):
        for name, rows in stacks.items():
            module, _, buffer = name.rpartition(".")
            setattr(replica.model.get_submodule(module), buffer, rows[number])
    return stacks


def backward(handed: list[Handed], buffers: dict[str, Tensor], share: float = 1.0) -> Tensor:
    """Does `(share * cross_entropy(model(images), labels)).backward()` for each, to rounding; returns the losses [P].

    `buffers`: `stacked` of the same replicas; BatchNorm updates its statistics there.
    """
    model = handed[0][0].model
    parameters = {name: layer.detach() for name, layer in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return share * F.cross_entropy(functional_call(model, (parameters, buffers), (images,)), labels)

    images, labels = torch.stack([batch for _, batch, _ in handed]), torch.stack([batch for _, _, batch in handed])
    gradients: dict[str, Tensor]
    losses: Tensor
    gradients, losses = vmap(grad_and_value(loss), in_dims=(None, 0, 0, 0))(parameters, buffers, images, labels)
    flat = torch.cat([gradient.reshape(len(handed), -1) for gradient in gradients.values()], dim=1)
    for row, (replica, _, _) in zip(flat, handed, strict=True):
        replica.gradient.add_(row)
    return losses
