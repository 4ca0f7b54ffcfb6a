"""Reads clocks after waiting for the GPU."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def clock() -> float:
    """Returns seconds. With one thread on a CPU, only its running time counts, not what else the machine does."""
    if torch.get_num_threads() == 1 and not torch.cuda.is_available():
        return time.thread_time()
    synchronize()
    return time.perf_counter()


def synchronize() -> None:
    """Waits for the GPU, so that a clock read next includes its work."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def finish_stream() -> None:
    """Waits for the GPU's work on this thread's stream alone: another thread's, which overlaps, goes on."""
    if torch.cuda.is_initialized():
        torch.cuda.current_stream().synchronize()


class Stopwatch:
    """Adds up the wall seconds of the parts of a step: `with timer("compute"): ...`, then `timer["compute"]`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        finish_stream()  # not what other threads have on the GPU, which may go on beside this part
        began = time.perf_counter()
        yield
        finish_stream()
        self.seconds[part] += time.perf_counter() - began

    def __getitem__(self, part: str) -> float:
        return self.seconds[part]
