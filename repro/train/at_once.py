"""Takes a network's pass in fewer kernels: what each layer does with its own weights alone is done for all at once.

Two fifths of ResNet-20's operators cast a weight, lay it out as convolutions read it, add its gradient up or count a
batch. Each takes as long as its start, also in a CUDA graph, and all runs on one GPU share what starts them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from repro.models._small_images import Convolution3x3
from repro.train.replica import Replica

Forward = Callable[[Tensor], Tensor]
FORWARDS = {
    layer.forward
    for layer in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d,
                  nn.ConvTranspose3d, Convolution3x3)
}  # fmt: skip


class AtOnce:
    """Adds to a replica's gradient what `loss.backward()` adds to it.

    To the bit, where all images have the channels last; in one pixel or another layout, other kernels may be taken.
    """

    def __init__(self, replica: Replica, autocast: bool):
        """`autocast`: convolutions and linear layers take bfloat16, as autocast gives it to them."""
        self.replica, self.dtype = replica, torch.bfloat16 if autocast else torch.float32
        model = replica.model
        self.names = [name for name, _ in model.named_parameters()]
        self.shapes = [layer.shape for layer in model.parameters()]
        self.laid_out = [channels_last(layer).shape for layer in model.parameters()]
        weights = {weight for module in model.modules() for weight in read_by_autocast(module)}
        self.are_weights = [layer in weights for layer in model.parameters()]
        self.norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
        places = torch.arange(replica.gradient.numel(), dtype=torch.int32, device=replica.gradient.device)
        # where an entry of the weights as they are laid out is in the flat vector, and where it is in `joined`
        self.order = torch.cat([channels_last(part).flatten() for part in self.parts(places, self.shapes)])
        self.back = self.joined(self.parts(places, self.shapes)).argsort().int()

    def add_gradient(self, loss_of: Callable[[Forward], Tensor]) -> Tensor:
        """Returns the loss, which `loss_of` makes with a forward pass."""
        flat = self.replica.parameters.detach()
        cast = flat.to(self.dtype).index_select(0, self.order)
        weights = map(channels_first, self.parts(cast, self.laid_out))
        either = zip(weights, self.parts(flat, self.shapes), self.are_weights, strict=True)
        leaves = [(weight if is_weight else other).requires_grad_() for weight, other, is_weight in either]
        named = dict(zip(self.names, leaves, strict=True))
        with self.counted():
            loss = loss_of(functools.partial(torch.func.functional_call, self.replica.model, named))
        found = torch.autograd.grad(loss, leaves, materialize_grads=True)
        self.replica.gradient += self.joined(found).index_select(0, self.back)
        return loss.detach()

    def parts(self, flat: Tensor, shapes: list[torch.Size]) -> list[Tensor]:
        parts = flat.split([shape.numel() for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Returns all as one vector [m] with the weights first: those of one type are joined by one kernel."""
        flat = [channels_last(part).flatten() for part in parts]
        weights = [part for part, its in zip(flat, self.are_weights, strict=True) if its]
        others = [part for part, its in zip(flat, self.are_weights, strict=True) if not its]
        return torch.cat([torch.cat(some) for some in (weights, others) if some])

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Counts all layers' batches at once: nothing reads them where BatchNorm has a momentum."""
        norms = [norm for norm in self.norms if norm.momentum is not None and norm.training]
        counts = {norm: norm.num_batches_tracked for norm in norms}
        for norm in counts:
            norm.num_batches_tracked = None
        try:
            yield
        finally:
            for norm, count in counts.items():
                norm.num_batches_tracked = count
        if kept := [count for count in counts.values() if count is not None]:
            torch._foreach_add_(kept, 1)


def read_by_autocast(module: nn.Module) -> list[Tensor]:
    """Returns what convolutions and linear layers give to operators of autocast alone: not one that does more."""
    plain = isinstance(module, _ConvNd | nn.Linear) and type(module).forward in FORWARDS
    return [weight for weight in (module.weight, module.bias) if isinstance(weight, nn.Parameter)] if plain else []


def channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1) if x.dim() == 4 else x


def channels_first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x
