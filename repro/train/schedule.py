"""Learning rate and density as pure functions of training progress (authors' code: _adjust_learning_rate_general).

`epoch` is a real number of epochs done: 2.5 is the middle of the third. With scale_schedule=true the whole schedule
(warm-ups and drops, which are written for schedule_epochs) is compressed or stretched to `epochs`.
"""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from repro.config import Config


def position(epoch: float, config: "Config") -> float:
    """Where `epoch` of this run lies in the schedule as it is written, in epochs."""
    return epoch * config.schedule_epochs / config.epochs if config.scale_schedule else epoch


def learning_rate(epoch: float, config: "Config") -> float:
    """Linear from lr / nodes to lr over lr_warmup_epochs, then times lr_drop_factor at each of lr_drops."""
    at = position(epoch, config)
    if at < config.lr_warmup_epochs:
        start = config.lr / config.nodes
        return start + (config.lr - start) * at / config.lr_warmup_epochs
    return config.lr * config.lr_drop_factor ** sum(at >= drop for drop in config.lr_drops)


def density(epoch: float, config: "Config") -> float:
    """The densities of density_warmup for one epoch each, then `density`."""
    at = int(position(epoch, config))
    return config.density_warmup[at] if at < len(config.density_warmup) else config.density


def entries(density: float, parameters: int) -> int:
    """k: how many of `parameters` entries a density selects, at least one."""
    return max(1, math.floor(density * parameters))
