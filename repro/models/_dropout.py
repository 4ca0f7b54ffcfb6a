"""Dropout that draws from the rank's own generator, so that ranks may be threads of one process."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


class Dropout(nn.Module):
    """Works as nn.Dropout with the given generator: zeroes with `probability`, scales the rest to keep the mean.

    The generator must live on the device of the activations. It is the rank's state, not the network's, so it is
    not in `state_dict`; the code that made it must save it.
    """

    def __init__(self, probability: float, generator: torch.Generator):
        super().__init__()
        self.probability, self.generator = probability, generator

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return x
        keep = 1 - self.probability
        return x * torch.empty_like(x).bernoulli_(keep, generator=self.generator).div_(keep)

    def extra_repr(self) -> str:
        return f"probability={self.probability}"


def replace(model: nn.Module, generator: torch.Generator) -> None:
    """Puts a `Dropout` with `generator` in the place of each nn.Dropout inside `model`."""
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):  # named_children() leaves out one that comes again
            if type(child) is nn.Dropout:
                setattr(module, name, Dropout(child.p, generator))


def process_wide_draws(model: nn.Module, inputs: Tensor) -> list[str]:
    """Returns the operators that draw from PyTorch's one generator while `model` computes logits of `inputs`."""
    with torch.no_grad():
        if not inputs.is_meta:  # a mode that looks at each operator imports PyTorch's compiler: only if there is one
            before = torch.default_generator.get_state()
            model(inputs)
            if torch.equal(torch.default_generator.get_state(), before):
                return []
        with _Draws() as draws:
            model(inputs)
    return sorted(draws.names)


class _Draws(TorchDispatchMode):
    """Notes each operator that draws random numbers and was given no generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            if given.get("generator") is None:
                self.names.add(func.overloadpacket.__name__)
            given = {**given, "generator": None} if "generator" in given else given  # a meta tensor takes none
        return func(*args, **given)
