"""Chooses the device on which a rank computes, and finds out whether ranks share GPUs."""

from __future__ import annotations

import torch
import torch.distributed as dist

from repro.cluster.environment import Place
from repro.config.schema import Config, ConfigError


def own_gpus(store: dist.Store, place: Place, device: torch.device) -> bool:
    """Returns whether every rank has a GPU that no other rank has; all ranks get the same answer.

    Compares the GPUs' UUIDs: SLURM may show each task one GPU only, which every task then counts as the first.
    """
    uuid = f"{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else ""
    store.set(f"gpu/{place.rank}", uuid)
    everyone = [store.get(f"gpu/{number}") for number in range(place.size)]
    return all(everyone) and len(set(everyone)) == place.size


def device_of(config: Config, place: Place) -> torch.device:
    """Returns the device of a rank. Raises ConfigError if a GPU is asked for where there is none, or none is taken."""
    if config.cluster.name == "lab":
        if config.device == "cuda":
            raise ConfigError("device=cuda: the lab shapes what CPUs send; leave device out, or type cluster=processes")
        return torch.device("cpu")
    if config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("device=cuda, but torch finds no GPU here; type device=cpu")
    return torch.device("cuda", place.local_rank % torch.cuda.device_count())


def take(device: torch.device) -> None:
    """Makes a GPU this thread's own, whose streams are waited for; sees to it that cuDNN adds up in one order.

    And that precision=float32 is that: cuDNN takes the 10 bits of TensorFloat-32 unless told.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
