"""The networks of the paper, one file each, found by name: `repro/models/NAME.py` with a function `build`.

    build(classes, image_size, generator, **options) -> nn.Module

takes images [batch, 3, image_size, image_size] to logits [batch, classes]; `generator` is for dropout.
Weights come from PyTorch's process-wide generator, which `load` seeds and puts back.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from typing import Any

import torch
from torch import nn

from repro.config import ConfigError
from repro.rng import derive

_initialising = threading.Lock()  # ranks may be threads, PyTorch's layers know only the process-wide generator


def load(
    name: str, classes: int, image_size: int, seed: int, dropout_generator: torch.Generator, **options: Any
) -> nn.Module:
    """The network on the CPU in training mode; a seed gives the same weights, whatever else the process does.

    Raises ConfigError for an unknown name and for images that are too small.
    """
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if name not in names:
        raise ConfigError(f"model.name={name}: there is no such model. Choose one of {', '.join(names)}.")
    build = importlib.import_module(f"{__name__}.{name}").build
    with _initialising, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, "weights"))
        return build(classes, image_size, dropout_generator, **options)


def require_size(name: str, image_size: int, smallest: int) -> None:
    """Raises ConfigError if the network's pooling would leave nothing of such images."""
    if image_size < smallest:
        raise ConfigError(
            f"model={name} needs images of at least {smallest}x{smallest}; these have "
            f"{image_size}x{image_size}. Choose other data, for example data=synthetic "
            "data.image_size=224, or model=resnet20."
        )
