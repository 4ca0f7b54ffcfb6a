"""Runs a function on P ranks at once, each a thread with its own Collective."""

import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch.distributed as dist

from repro.cluster.ranks import Rank
from repro.comm.collective import Collective, Transport
from repro.comm.transport import MemoryTransport, Wires, gloo
from repro.config.schema import Config
from repro.data import Dataset
from repro.timing.before_run import before_a_run
from repro.train import loop

_open: dict[int, dict[int, Transport]] = {}  # by number of ranks: connecting costs more than most tests do


def on_ranks(size: int, body: Callable[[Collective], Any], over: Literal["memory", "gloo"] = "memory") -> list[Any]:
    """`body(collective)` on each rank; the results in rank order, or the first error.

    Memory spares the kernel's work, which is most of gloo's. But its sends never wait: that gloo carries the same for
    each algorithm, on any number of ranks, is tested in test_algorithms.py and test_mixing.py.
    """
    wires = _open.pop(size, None) or _connected(size) if over == "gloo" else _in_memory(size)
    results, errors = [None] * size, list[BaseException]()

    def run(rank: int) -> None:
        try:
            results[rank] = body(Collective(wires[rank]))
            Collective(wires[rank]).barrier()
        except BaseException as error:
            errors.append(error)
            wires.pop(rank).close()  # those who wait for this rank fail at once

    _together(range(size), run)
    if errors:
        _close(wires)
        raise errors[0]
    if over == "gloo":
        _open[size] = wires
    return results


def disconnect() -> None:
    """Close what `on_ranks` keeps open."""
    while _open:
        _close(_open.popitem()[1])


def _in_memory(size: int) -> dict[int, Transport]:
    shared = Wires(size)
    return {rank: MemoryTransport(rank, shared) for rank in range(size)}


def _connected(size: int) -> dict[int, Transport]:
    store, wires = dist.HashStore(), dict[int, Transport]()

    def join(rank: int) -> None:
        wires[rank] = gloo(store, rank, size, timeout_s=60)

    _together(range(size), join)
    return wires


def _close(wires: dict[int, Transport]) -> None:
    _together(wires, lambda rank: wires[rank].close())


def _together(ranks: Iterable[int], body: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=body, args=(rank,)) for rank in ranks]
    with _one_core():
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def _one_core() -> Iterator[None]:
    """Threads that start here share one core: waking each other across cores costs more than their work is."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.choice(sorted(before))})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def train_each(configs: list[Config], config: Config, rank: Rank, data: Dataset) -> None:
    """A `main` for `ranks.launch`: several runs, one after the other, by ranks that are there once."""
    for each in configs:
        loop.train(each, rank, data, before_a_run)
