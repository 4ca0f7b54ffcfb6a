"""What an all-reduce of P ranks that are threads of one process takes of their step: seconds, and their processor time.

    python benchmarks/all_reduce.py [--nodes 4] [--parameters 269722] [--repeats 300]

`repro bench step` compares a run with loops that send nothing. This is how much of the difference dense S-SGD's own
messages are: over gloo, on loopback, with the cores that train.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import threading
import time

import torch
import torch.distributed as dist

from repro import screen
from repro.comm import transport
from repro.comm.collective import Collective

TIMEOUT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--parameters", type=int, default=269722, help="float32 numbers; those of ResNet-20")
    parser.add_argument("--repeats", type=int, default=300)
    given = parser.parse_args()
    screen.show([measured(given.nodes, given.parameters, given.repeats)])


def measured(nodes: int, parameters: int, repeats: int) -> dict[str, float]:
    """Returns a row: the median of all ranks' calls, and the processor time of the whole process a call."""
    torch.set_num_threads(1)
    store, seconds, ready = dist.HashStore(), list[float](), threading.Barrier(nodes + 1)

    def rank(number: int) -> None:
        collective = Collective(transport.gloo(store, number, nodes, TIMEOUT_S))
        x = torch.ones(parameters)
        collective.all_reduce(x)
        ready.wait()
        for _ in range(repeats):
            began = time.perf_counter()
            collective.all_reduce(x).div_(nodes)
            seconds.append(time.perf_counter() - began)
        ready.wait()
        collective.transport.close()

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(nodes)]
    for thread in threads:
        thread.start()
    ready.wait()
    before = resource.getrusage(resource.RUSAGE_SELF)
    ready.wait()
    after = resource.getrusage(resource.RUSAGE_SELF)
    for thread in threads:
        thread.join()
    return {
        "nodes": nodes,
        "call (ms)": 1e3 * statistics.median(seconds),
        "user (ms)": 1e3 * (after.ru_utime - before.ru_utime) / repeats,
        "kernel (ms)": 1e3 * (after.ru_stime - before.ru_stime) / repeats,
    }


if __name__ == "__main__":
    main()
