"""Chooses the device on which a rank computes, and finds out whether ranks share GPUs."""

from __future__ import annotations

import socket

import torch
import torch.distributed as dist

from repro.cluster.environment import Place
from repro.config.schema import Config, ConfigError, RunError


def own_gpus(store: dist.Store, place: Place, device: torch.device) -> bool:
    """Returns whether every rank has a GPU that no other rank has; all ranks get the same answer.

    Compares the GPUs' UUIDs: SLURM may show each task one GPU only, which every task then counts as the first.
    Raises RunError where some ranks have a GPU and others none: these would hold up all, and times would be of both.
    """
    uuid = f"{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else ""
    store.set(f"gpu/{place.rank}", uuid)
    store.set(f"host/{place.rank}", socket.gethostname())
    everyone = [store.get(f"gpu/{number}") for number in range(place.size)]
    without = [number for number, its in enumerate(everyone) if not its]
    if without and any(everyone):
        host = store.get(f"host/{without[0]}").decode()
        raise RunError(
            f"rank {without[0]} on {host} has no GPU, and others have: leave {host} out, or type device=cpu for all"
        )
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


def own_stream(device: torch.device) -> None:
    """Gives this thread a stream of its own: on the one of all threads, ranks' kernels would wait for each other's."""
    if device.type == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream(device))


def of_first(config: Config) -> torch.device:
    """Returns the device that a run's rank 0 has, if this machine is its own. Raises ConfigError as `device_of`."""
    return device_of(config, Place(0, 1, 0, 1))


def of_one(config: Config) -> torch.device:
    """Returns the device of a run's rank 0, taken for this thread. Raises ConfigError."""
    device = of_first(config)
    take(device)
    return device
