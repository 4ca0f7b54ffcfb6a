"""Runs ranks as threads of this process: 32 of them start within a second and share one import."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.distributed as dist

from repro.children import usable_cores
from repro.cluster import environment, start
from repro.cluster.devices import device_of
from repro.cluster.environment import Place, find_place
from repro.cluster.preempt import Interrupt
from repro.comm import transport
from repro.config.schema import Config

RunRank = Callable[..., Any]  # ranks.run_rank, which imports this module


def launch(
    config: Config,
    run_rank: RunRank,
    main: Callable[..., Any],
    share: Callable[[Config], Any],
    interrupt: Interrupt,
    failed: Callable[[str], None] | None = None,
) -> Any:
    """Returns what rank 0 returned. Each rank has its own gloo group on one store in memory.

    With a GPU each they have NCCL; those that share one pass their messages there, in memory: gloo would carry each
    through the CPU's. So do those on the CPU with cluster.messages=memory.
    """
    store, data, size = dist.HashStore(), share(config), config.nodes
    places, turns = _places(size), _turns(config)
    wires = transport.Wires(size, config.timeout_s) if in_memory(config) else None
    failures: list[BaseException] = []
    results: list[Any] = [None] * size

    def body(number: int) -> None:
        try:
            results[number] = run_rank(
                config, places[number], store, main, data, interrupt, turns, failed=failed, wires=wires
            )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(number,), name=f"rank-{number}") for number in range(size)]
    for number, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError as error:  # the ranks that run already learn of it while they wait for all
            failures.append(start.failed(store, number, error))
            threads = threads[:number]
            break
    for thread in threads:
        thread.join()
    if failures:
        final = interrupt.final
        first = next((one for one in failures if isinstance(one, KeyboardInterrupt) and final), failures[0])
        try:
            raise first
        finally:  # its traceback has this frame: they would keep each other, and the networks of all ranks
            failures.clear()
            del first
    return results[0]


def as_threads(config: Config) -> bool:
    """Returns whether the ranks are threads of this process. Raises ConfigError."""
    return find_place(config) is None and not config.cluster.forks


def gpus(config: Config) -> int:
    """Returns how many GPUs ranks that are threads of this process have; 0 for others. Raises ConfigError."""
    devices = {device_of(config, place) for place in _places(config.nodes)} if as_threads(config) else set()
    return sum(device.type == "cuda" for device in devices)


def on_one_gpu(config: Config) -> bool:
    """Returns whether two ranks or more are threads that have one GPU, all of them. Raises ConfigError."""
    return config.nodes > 1 and gpus(config) == 1


def in_memory(config: Config) -> bool:
    """Returns whether ranks that are threads hand their messages over in memory. Raises ConfigError."""
    return on_one_gpu(config) or (config.cluster.messages == "memory" and as_threads(config))


def of_each(config: Config, local_size: int) -> int:
    """Returns how many threads a rank uses inside an operation: its share of the cores, or what SLURM gave each task.

    Where SLURM binds tasks to cores this process sees its own alone, which are not to be shared again.
    """
    cores = usable_cores()
    is_task = find_place(config) is not None or config.nodes == 1
    of_task = environment.cpus_of_task() if is_task else None
    mine = min(cores, of_task) if of_task is not None else cores // local_size
    return config.threads or max(1, mine)


def _places(size: int) -> list[Place]:
    """Returns the places of ranks that are all on this machine."""
    return [Place(number, size, number, size) for number in range(size)]


def _turns(config: Config) -> AbstractContextManager[object]:
    """Limits how many CPU ranks compute at once to the cores: 32 at once would hold 32 times what backward keeps."""
    if device_of(config, _places(config.nodes)[0]).type != "cpu":
        return nullcontext()
    return threading.Semaphore(max(1, usable_cores() // of_each(config, config.nodes)))
