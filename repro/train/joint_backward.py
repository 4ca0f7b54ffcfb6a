"""Ranks that share a GPU compute their gradients in one pass over all their batches (torch.func).

A small network is bound by the launches of its kernels: ranks that take turns launch them once each, from threads of
one interpreter. Here rank 0 launches them for all, with the ranks as one more dimension. The parameters are alike on
all ranks, so a convolution runs on all their images at once; gradients and BatchNorm's statistics stay each rank's own.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from repro import algorithms
from repro.config import Config, ConfigError
from repro.dropout import Dropout
from repro.replica import Replica

if TYPE_CHECKING:
    from repro.collective import Collective

Handed = tuple[Replica, Tensor, Tensor]  # images [B, 3, H, W], labels [B]


class Together:
    """What the threads of one process hand to each other, and that `at_once` of them compute; one for all ranks."""

    def __init__(self, size: int, at_once: int):
        self.turns = threading.Semaphore(at_once)
        self.handed: list[Handed | None] = [None] * size
        self.buffers: dict[str, Tensor] | None = None
        self.losses = torch.empty(0)

    def backward(self, mine: Handed, share: float, control: Collective) -> Tensor:
        """Add to each rank's `replica.gradient` that of `share` times its mean loss; return this rank's. Collective."""
        self.handed[control.rank] = mine
        control.barrier()
        if control.rank == 0:
            handed = [one for one in self.handed if one is not None]
            if self.buffers is None:
                self.buffers = stacked([replica for replica, _, _ in handed])
            self.losses = backward(handed, self.buffers, share)
        control.barrier()  # if rank 0 failed, it has hung up by now
        return self.losses[control.rank]


def stacked(replicas: list[Replica]) -> dict[str, Tensor]:
    """Each buffer of all replicas as [P, ...], into which theirs become views: no copies at every step."""
    everyones = [dict(replica.model.named_buffers()) for replica in replicas]
    together = {name: torch.stack([own[name] for own in everyones]) for name in everyones[0]}
    for number, replica in enumerate(replicas):
        for name, rows in together.items():
            module, _, buffer = name.rpartition(".")
            setattr(replica.model.get_submodule(module), buffer, rows[number])
    return together


def backward(handed: list[Handed], buffers: dict[str, Tensor], share: float = 1.0) -> Tensor:
    """`(share * cross_entropy(model(images), labels)).backward()` of each, up to rounding; returns the losses [P].

    `buffers`: `stacked` of the same replicas; BatchNorm moves its statistics there.
    """
    model = handed[0][0].model
    parameters = {name: layer.detach() for name, layer in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        return share * F.cross_entropy(functional_call(model, (parameters, buffers), (images,)), labels)

    images, labels = torch.stack([own for _, own, _ in handed]), torch.stack([own for _, _, own in handed])
    found = vmap(grad_and_value(loss), in_dims=(None, 0, 0, 0))(parameters, buffers, images, labels)
    gradients: dict[str, Tensor] = found[0]
    losses: Tensor = found[1]
    flat = torch.cat([gradient.reshape(len(handed), -1) for gradient in gradients.values()], dim=1)
    for row, (replica, _, _) in zip(flat, handed, strict=True):
        replica.gradient.add_(row)
    return losses


def wanted(config: Config, model: nn.Module, shared: bool) -> bool:
    """Whether to compute so; `shared`: the ranks are threads of this process on one device. Raises ConfigError."""
    if config.together == "off" or (config.together == "auto" and not (shared and next(model.parameters()).is_cuda)):
        return False
    algorithm = algorithms.load(config.algo, 8)
    dropout = any(isinstance(module, Dropout) for module in model.modules())
    reasons = {
        "the ranks must be threads on one device: leave cluster and launchers out": not shared,
        f"algo={config.algo.name} gives each rank weights of its own": algorithms.mixes(algorithm),
        f"algo={config.algo.name} looks at each layer's backward": hasattr(algorithm, "wrap"),
        "overlap=on needs each rank's own backward": config.overlap == "on",
        f"precision={config.precision}: torch.func has BatchNorm in float32 alone": config.precision != "float32",
        f"model={config.model.name} has dropout, which each rank draws": dropout,
    }
    why_not = [reason for reason, holds in reasons.items() if holds]
    if why_not and config.together == "on":
        raise ConfigError(f"together=on: {why_not[0]}. Type together=off")
    return not why_not
