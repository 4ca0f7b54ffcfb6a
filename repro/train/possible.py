"""Checks whether a run is possible, beyond the range of each single key, before its first rank starts."""

from __future__ import annotations

import torch

from repro import algorithms, models
from repro.cluster.devices import of_first
from repro.config.schema import Config, ConfigError
from repro.train import combinations


def check(config: Config) -> None:
    """Raises ConfigError for an algorithm, model, device or combination that is impossible; leaves no files."""
    of_first(config)  # refuses a GPU that is not there, or not taken
    algorithms.load(config.algo, 8)  # an option's value that no range forbids
    model = models.sized_only(config)  # takes no memory, whatever the model
    _check_layers(config, model)
    if config.batch_per_node == 1 and config.data.image_size:
        _check_variances(config, model)
    combinations.check(config)


def _check_layers(config: Config, model: torch.nn.Module) -> None:
    """Raises ConfigError for frozen parameters, which an update of all would move, and for what no checkpoint has."""
    frozen = [name for name, layer in model.named_parameters() if not layer.requires_grad]
    if frozen:
        raise ConfigError(
            f"model={config.model.name}: {frozen[0]} is frozen, and a run trains every parameter. Leave out "
            "requires_grad=False, or train the others in a loop of your own (docs/own_loop.md)."
        )
    for name, module in model.named_modules():
        if getattr(module, "track_running_stats", False) and module.momentum is None:
            raise ConfigError(
                f"model={config.model.name}: {name} has momentum=None, and how many batches its statistics are the "
                "mean of is not in checkpoints. Give it a momentum, as 0.1."
            )


def _check_variances(config: Config, model: torch.nn.Module) -> None:
    """Raises ConfigError where BatchNorm has one value of a channel, which has no variance."""

    def check_one(module: torch.nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        if inputs[0].numel() == inputs[0].shape[1]:
            raise ConfigError(
                f"batch_per_node=1: of an image of {config.data.image_size} x {config.data.image_size}, BatchNorm in "
                f"model={config.model.name} has one value a channel, which has no variance; type batch_per_node=2"
            )

    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.register_forward_hook(check_one)
    with torch.device("meta"):
        inputs, _ = models.made_up_batch(1, config.data.classes, config.data.image_size)
    model.eval()(inputs)
