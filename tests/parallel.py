"""Runs a function on P ranks at once, each a thread with its own Collective over real gloo."""

import threading
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from repro import training
from repro.collective import Collective
from repro.config import Config
from repro.data import Dataset
from repro.ranks import Rank
from repro.transport import gloo


def on_ranks(size: int, body: Callable[[Collective], Any]) -> list[Any]:
    """`body(collective)` on each rank; the results in rank order, or the first error."""
    store, results, errors = dist.HashStore(), [None] * size, list[BaseException]()

    def run(rank: int) -> None:
        wire = gloo(store, rank, size, timeout_s=60)
        try:
            results[rank] = body(Collective(wire))
            Collective(wire).barrier()
        except BaseException as error:
            errors.append(error)
        finally:
            wire.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def train_each(configs: list[Config], config: Config, rank: Rank, data: Dataset) -> None:
    """A `main` for `ranks.launch`: several runs, one after the other, by ranks that are there once."""
    for each in configs:
        training.train(each, rank, data)
