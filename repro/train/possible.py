"""Checks whether a run is possible, beyond the range of each single key, before its first rank starts."""

from __future__ import annotations

import torch

from repro import algorithms, models
from repro.config.schema import Config, ConfigError
from repro.train import aggregator


def check(config: Config) -> None:
    """Raises ConfigError for an algorithm, model, device or combination that is impossible; leaves no files."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda, but torch finds no GPU here; type device=cpu")
    algorithms.load(config.algo, 8)  # an option's value that no range forbids
    models.sized_only(config)  # takes no memory, whatever the model
    aggregator.check(config)
