"""Whether denormal numbers slow training on this processor, and whether runs come to hold any.

    python benchmarks/denormals.py [RUN_FOLDER ...]

It times SGD's update of 269,722 parameters and a convolution on values that are normal and on denormal ones, with
`torch.set_flush_denormal` off and on, in turn, and counts the denormals in the newest checkpoints of the run folders:
weights, velocities, residuals and all else that is saved.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from repro import tables
from repro.runs import checkpoint

M = 269_722  # parameters of ResNet-20
SMALLEST = 0x00800000  # the bits of the smallest float32 that is normal
VALUES = {"normal": 1e-3, "denormal": 1e-40}
REPEATS = 200


def update(value: float) -> Callable[[], Tensor]:
    velocity, weights = torch.full((M,), value), torch.ones(M)
    return lambda: weights.add(velocity.mul(0.9), alpha=-0.1)


def convolution(value: float) -> Callable[[], Tensor]:
    images, kernel = torch.full((4, 16, 32, 32), value), torch.ones(16, 16, 3, 3)
    return lambda: torch.nn.functional.conv2d(images, kernel, padding=1)


def timed(work: Callable[[], Tensor]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rows() -> Iterator[tables.Row]:
    """Yields the median seconds of each, over that of normal values without flushing, all in turn."""
    for name, made in (("SGD's update", update), ("convolution", convolution)):
        seconds: dict[tuple[bool, str], list[float]] = {}
        works = {kind: made(value) for kind, value in VALUES.items()}
        for _ in range(REPEATS):
            for flush in (False, True):
                torch.set_flush_denormal(flush)
                for kind, work in works.items():
                    seconds.setdefault((flush, kind), []).append(timed(work))
        torch.set_flush_denormal(False)
        medians = {case: statistics.median(each) for case, each in seconds.items()}
        for (flush, kind), median in medians.items():
            yield {
                "work": name, "values": kind, "flushed": "yes" if flush else "no",
                "median (ms)": 1e3 * median, "over normal": median / medians[False, "normal"], "repeats": REPEATS,
            }  # fmt: skip


def tensors(state: object) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for part in state.values():
            yield from tensors(part)
    elif isinstance(state, list | tuple):
        for part in state:
            yield from tensors(part)


def counted(folder: Path) -> tables.Row:
    found = checkpoint.newest_whole(folder / "checkpoints")
    values, denormal = 0, 0
    for path in sorted(found.folder.glob("*.pt")):
        for tensor in tensors(checkpoint.load(found.folder, path.name, torch.device("cpu"))):
            if tensor.is_floating_point():
                bits = tensor.float().view(torch.int32) & 0x7FFFFFFF  # a comparison of floats may flush them itself
                values += bits.numel()
                denormal += int(((bits > 0) & (bits < SMALLEST)).sum())
    return {"run": folder.name, "step": found.step, "values": values, "denormal": denormal}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(tables.to_markdown(list(rows())))
    print(tables.to_markdown([counted(Path(folder)) for folder in sys.argv[1:]]))
