"""Loads the networks of the paper by name: each is a file `repro/models/NAME.py` with a function `build`.

    build(classes, image_size, generator, **options) -> nn.Module

    blocks(model) -> list[nn.Module]      where it can be split into stages

The module maps images [batch, 3, image_size, image_size] to logits [batch, classes]; so do its blocks, one after the
other, which have all its parameters in their order, and none of which changes its input in place. One whose YAML says
`reads: text` maps words [batch, sequence] to logits [batch * sequence, classes], and `image_size` is 0.

Weights come from PyTorch's process-wide generator, which `load` seeds and restores. The forward pass draws from
`generator` alone, the rank's own: `load` replaces each nn.Dropout by the rank's, and `sized_only` refuses a network
that draws in another way.
"""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from repro.config.schema import Config, ConfigError
from repro.models import _dropout
from repro.rng import derive

_initialising = threading.Lock()  # ranks may be threads, but PyTorch's layers use only the process-wide generator


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def load(
    name: str, classes: int, image_size: int, seed: int, dropout_generator: torch.Generator, **options: Any
) -> nn.Module:
    """Returns the network on the CPU in training mode; a seed always gives the same weights.

    Raises ConfigError for an unknown name, and for images that are too small.
    """
    if name not in names():
        raise ConfigError(f"model.name={name}: there is no such model. Choose one of {', '.join(names())}.")
    with _initialising, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, "weights"))
        return _build(name, classes, image_size, dropout_generator, options)


def sized_only(config: Config) -> nn.Module:
    """Returns the network with shapes but no values.

    Raises ConfigError as `load` does, and for a forward pass that draws from the process-wide generator: ranks are
    threads, processes or machines, and would not get the same bits. Not in `load`, where each of 32 processes would
    import for it what PyTorch's meta device needs, for 1.5 s.
    """
    model, data = config.model, config.data
    _refuse_draws(model.name, data.classes, data.image_size, json.dumps(model.options))
    return sized(model.name, data.classes, data.image_size, model.options)


def sized(name: str, classes: int, image_size: int, options: dict[str, Any]) -> nn.Module:
    """Returns the network with shapes but no values; draws in its forward pass are not looked for."""
    with torch.device("meta"), _Unfilled():
        return load(name, classes, image_size, 0, torch.Generator(), **options)


class _Unfilled(TorchFunctionMode):
    """Leaves out normal_: of a tensor without values it does nothing, and imports PyTorch's compiler for that."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func is Tensor.normal_ else func(*args, **(kwargs or {}))


def looked_at(
    name: str, classes: int, image_size: int, options: dict[str, Any], sequence: int = 1
) -> AbstractContextManager[object]:
    """Returns where to make a network and inputs whose forward pass is to be looked at.

    That is the meta device, and for a small network the CPU, which is done sooner than the 1.5 s in which Python
    imports what a pass on the meta device needs.
    """
    parameters = sum(layer.numel() for layer in sized(name, classes, image_size, options).parameters())
    small = parameters < 20_000_000 and max(image_size, sequence) <= 64
    return nullcontext() if small else torch.device("meta")  # torch.device("cpu") would import the same


def blocks(name: str, model: nn.Module) -> list[nn.Module]:
    """Returns the modules whose composition is `model`, the network `name`; one whose file has no `blocks` is one."""
    found = vars(importlib.import_module(f"{__name__}.{name}")).get("blocks")
    return [model] if found is None else list(found(model))


def numel(output: object) -> int:
    """Returns how many numbers a layer's output has: of attention and recurrent layers it is a tuple of tensors."""
    return sum(part.numel() for part in tree_leaves(output) if isinstance(part, Tensor))


def grouped(layers: Iterable[nn.Module]) -> list[nn.Module]:
    """Puts layers that follow each other into blocks, each of which begins with a convolution or a linear layer."""
    groups: list[list[nn.Module]] = []
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.Linear) or not groups:
            groups.append([])
        groups[-1].append(layer)
    return [nn.Sequential(*group) for group in groups]


def _build(name: str, classes: int, image_size: int, generator: torch.Generator, options: dict[str, Any]) -> nn.Module:
    model: nn.Module = importlib.import_module(f"{__name__}.{name}").build(classes, image_size, generator, **options)
    _dropout.replace(model, generator)
    return model


@functools.cache
def _refuse_draws(name: str, classes: int, image_size: int, options: str) -> None:
    """Raises ConfigError where the forward pass draws from the process-wide generator.

    It runs once a process; a large network without numbers, and one that cannot run so is not looked at here.
    """
    given = json.loads(options)
    with looked_at(name, classes, image_size, given), _initialising, torch.random.fork_rng(devices=[]):
        model = _build(name, classes, image_size, torch.Generator(), given)
        inputs, _ = made_up_batch(2, classes, image_size)
        try:
            drawn = _dropout.process_wide_draws(model, inputs)
        except (NotImplementedError, RuntimeError):
            return
    if drawn:
        raise ConfigError(
            f"model={name} draws random numbers ({', '.join(drawn)}) from PyTorch's process-wide generator, as "
            "F.dropout and stochastic depth do; its ranks would not repeat their bits. Use nn.Dropout, which is "
            "made the rank's own, or draw from the generator that build() is given."
        )


def made_up_batch(rows: int, classes: int, image_size: int, sequence: int = 2) -> tuple[Tensor, Tensor]:
    """Returns random inputs and labels: `rows` images, or where `image_size` is 0 so many rows of `sequence` words.

    Images have the channels last, as those of a run.
    """
    if image_size:
        images = torch.randn(rows, 3, image_size, image_size)
        return images.contiguous(memory_format=torch.channels_last), torch.randint(classes, (rows,))
    return torch.randint(classes, (rows, sequence)), torch.randint(classes, (rows * sequence,))


def require_size(name: str, image_size: int, smallest: int) -> None:
    """Raises ConfigError if the network's pooling would leave no pixel of such images."""
    if image_size < smallest:
        raise ConfigError(
            f"model={name} needs images of at least {smallest}x{smallest}; these have "
            f"{image_size}x{image_size}. Choose other data, for example data=synthetic "
            "data.image_size=224, or model=resnet20."
        )
