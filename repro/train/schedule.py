"""Computes learning rate and density from training progress alone (authors' code: _adjust_learning_rate_general).

`epoch` is a real number of epochs done: 2.5 is the middle of the third. The schedule (warm-ups and drops, which are
written for schedule_epochs) is used as it is, so that a run of fewer epochs is the beginning of a whole one. With
scale_schedule=true it is compressed or stretched to `epochs`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from repro.config.schema import Config


def position(epoch: float, config: "Config") -> float:
    """Returns where `epoch` of this run lies in the schedule as it is written, in epochs."""
    if not config.scale_schedule or config.epochs == config.schedule_epochs:  # which is the same, to the bit
        return epoch
    at = epoch * config.schedule_epochs / config.epochs
    return round(at) if abs(at - round(at)) < 1e-9 else at  # a drop is at its step, not at the next by rounding


def learning_rate(epoch: float, config: "Config") -> float:
    """Returns lr, which rises over lr_warmup_epochs from lr / nodes or zero, times lr_drop_factor from each drop on."""
    at = position(epoch, config)
    if at < config.lr_warmup_epochs:
        start = config.lr / config.nodes if config.lr_warmup_from == "nodes" else 0.0
        return start + (config.lr - start) * at / config.lr_warmup_epochs
    return config.lr * config.lr_drop_factor ** sum(at >= drop for drop in config.lr_drops)


def density(epoch: float, config: "Config") -> float:
    """Returns the densities of density_warmup for one epoch each, then `density`."""
    at = int(position(epoch, config))
    return config.density_warmup[at] if at < len(config.density_warmup) else config.density


def is_multiple(step: int, every: int) -> bool:
    """Returns whether something that is done every so many steps, 0 for never, is due after `step`."""
    return every > 0 and step > 0 and step % every == 0
