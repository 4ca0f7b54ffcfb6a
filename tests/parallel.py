"""Runs a function on P ranks at once, each a thread with its own Collective over real gloo."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch.distributed as dist

from repro import training
from repro.collective import Collective
from repro.config import Config
from repro.data import Dataset
from repro.ranks import Rank
from repro.transport import GroupTransport, gloo

_open: dict[int, dict[int, GroupTransport]] = {}  # by number of ranks: connecting costs more than most tests do


def on_ranks(size: int, body: Callable[[Collective], Any]) -> list[Any]:
    """`body(collective)` on each rank; the results in rank order, or the first error."""
    wires = _open.pop(size, None) or _connected(size)
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
    _open[size] = wires
    return results


def disconnect() -> None:
    """Close what `on_ranks` keeps open."""
    while _open:
        _close(_open.popitem()[1])


def _connected(size: int) -> dict[int, GroupTransport]:
    store, wires = dist.HashStore(), dict[int, GroupTransport]()

    def join(rank: int) -> None:
        wires[rank] = gloo(store, rank, size, timeout_s=60)

    _together(range(size), join)
    return wires


def _close(wires: dict[int, GroupTransport]) -> None:
    _together(wires, lambda rank: wires[rank].close())


def _together(ranks: Iterable[int], body: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=body, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def train_each(configs: list[Config], config: Config, rank: Rank, data: Dataset) -> None:
    """A `main` for `ranks.launch`: several runs, one after the other, by ranks that are there once."""
    for each in configs:
        training.train(each, rank, data)
