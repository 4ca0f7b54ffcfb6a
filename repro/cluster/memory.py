"""How much memory ranks take on this machine's CPU: a formula that `benchmarks/memory.py` holds to measured runs.

    base + (vectors * nodes + first) * 4 m + heaps * held + turns * more + nodes * (rank + micro) + copies * images

m, the activations and what lives at once come from the network on PyTorch's meta device, which computes shapes alone.
Ranks take turns to compute, but the C library keeps in each of its heaps what was freed there: `held` is of a step's
activations, or of an evaluation if that leaves more. A process has a heap, and one with many threads eight for a core.
Those whose turn it is have `more`, in either; with overlap=on and DDP all have it at once. `rank` is what a thread
takes, or a process for itself, and `micro` are the micro-batches of a step beside the first. Of a pipeline each rank
has a part of m, and once the whole to evaluate. Ranks that are threads share the images that are held in memory; of
ranks that are processes each has its copy.
"""

from __future__ import annotations

import ctypes
import functools
import resource
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from repro import algorithms, data, models, screen
from repro.children import usable_cores
from repro.cluster.devices import of_first
from repro.cluster.threads import as_threads
from repro.config.schema import Config, ConfigError
from repro.data._shards import TEST_BATCH, TEST_ROWS

BASE = 0.95e9  # bytes: PyTorch, Numba and the libraries of the data and the mirror, once used
PROCESS = 0.25e9  # of it what a forked rank does not share
VECTORS = 6.2  # of m float32, a rank: parameters, gradient, velocity, residual, and what a step makes for itself
FIRST = 2.4  # more of them on rank 0, whose step is timed before the run
RANK = 15e6  # a rank's threads and connections, and what its allocator cannot use again
STEP = 1.25  # of a step's activations, what the C library keeps of it: they lie in pieces
BACKWARD = 0.25  # of a step's activations: gradients and work space beside them
KEPT, KEPT_BY_PROCESS = 2.0, 0.9  # of what lives at once in an evaluation, what the C library keeps of it in pieces
HEAPS = 8  # for each core, of one process: glibc's limit on 64 bits

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # as in glibc's malloc.h
MAPPED = 1 << 28  # bytes: what is larger still goes back when it is freed; some versions allow an eighth at most


def needed(config: Config, nodes: int | None = None, rough: bool = False) -> float:
    """Returns the peak bytes of `config`'s ranks on the CPU of one machine; `nodes`: were they so many.

    `rough`: at most, as if all layers' outputs lived at once in an evaluation.
    """
    nodes = nodes or config.nodes
    processes = config.cluster.forks
    if config.node is not None:  # nothing is trained: messages alone, of which DDP's are as large as the gradient
        gradients = nodes * 4 * outputs(config)[0] if algorithms.of(config.algo).wraps else 0
        return BASE + nodes * PROCESS + gradients
    parameters, activations = outputs(config)
    live = activations if rough else alive(config)
    cores = usable_cores()
    at_once = processes or algorithms.overlaps(config)  # else threads take turns
    turns = nodes if at_once else min(nodes, max(1, cores // (config.threads or 1)))
    step = 4 * activations * config.batch_per_node
    evaluating = 4 * live * _evaluated(config, nodes)
    kept = min((KEPT_BY_PROCESS if processes else KEPT) * evaluating, 2 * MAPPED)
    held = max(STEP * step, kept)
    whole = nodes if config.stages > 1 else 0  # networks that are put together to evaluate
    vectors = (VECTORS * nodes / config.stages + FIRST + whole) * 4 * parameters
    more = turns * max(BACKWARD * step, evaluating + kept - held)
    images = (nodes if processes else 1) * data.in_memory(config.data)
    heaps = nodes if processes else min(nodes, HEAPS * cores)
    micro = (config.accumulate - 1) * config.batch_per_node * 4 * 3 * config.data.image_size**2
    rank = RANK + (PROCESS if processes else 0)
    return BASE + vectors + nodes * (rank + micro) + heaps * held + more + images


def check(config: Config) -> None:
    """Raises ConfigError with the number of nodes that fit into what is free.

    Ranks that are threads take what this process kept of a run before. Of a network that cannot run without numbers, as
    one that reads a value in its forward pass, nothing is known.
    """
    room = available()
    if room is None or of_first(config).type != "cpu":
        return
    if as_threads(config):
        room += held()
    try:
        if needed(config, rough=True) <= room or (need := needed(config)) <= room:
            return
    except (NotImplementedError, RuntimeError):
        return
    least = max(config.stages, config.machines or 1)
    fewer = range(config.nodes - config.stages, least - 1, -config.stages)
    fit = next((nodes for nodes in fewer if needed(config, nodes) <= room), 0)
    few = "not even one node fits" if least == 1 else f"not even {least} nodes fit"
    advice = f"{fit} nodes fit: type nodes={fit}" if fit else f"{few}: type a smaller batch_per_node"
    raise ConfigError(
        f"nodes={config.nodes} of model={config.model.name} need about {screen.size(need)} of memory, and "
        f"{screen.size(room)} are free; {advice}"
    )


def keep_freed() -> None:
    """Makes the C library keep what this process frees: else each step gets its pages from the kernel anew.

    Does nothing where the library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and (mallopt(MMAP_THRESHOLD, MAPPED) or mallopt(MMAP_THRESHOLD, MAPPED // 8)):
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
        mallopt(TOP_PAD, MAPPED)  # a thread's heap goes back in pieces of 64 MB, unless as much is to be left free


def held() -> float:
    """Bytes that this process has for itself, in use or kept free; 0 where the system does not tell."""
    try:
        resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
    except OSError:
        return 0.0
    return float(resident - shared) * resource.getpagesize()


def available() -> float | None:
    """Bytes that the machine and this process's control group still have; None where neither tells."""
    rooms = [float(limit - used) for limit, used in _limits()]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        rooms += [int(line.split()[1]) * 1024.0 for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        pass
    return min(rooms, default=None)


def outputs(config: Config) -> tuple[int, int]:
    """Parameters, and the entries of all layers' outputs of one sample."""
    return _outputs(*_network(config))


def alive(config: Config) -> int:
    """The entries of outputs that live at once to evaluate one sample."""
    return _alive(*_network(config))


Options = tuple[tuple[str, object], ...]


def _network(config: Config) -> tuple[str, int, int, int, Options]:
    data = config.data
    return config.model.name, data.classes, data.image_size, data.sequence, tuple(sorted(config.model.options.items()))


@functools.cache
def _outputs(name: str, classes: int, image_size: int, sequence: int, options: Options) -> tuple[int, int]:
    sizes = [0]

    def note(module: torch.nn.Module, inputs: object, output: object) -> None:
        sizes.append(models.numel(output) // 2)

    there = models.looked_at(name, classes, image_size, dict(options), sequence)
    with there, torch.no_grad(), torch.random.fork_rng(devices=[]):
        model = models.load(name, classes, image_size, 0, torch.Generator("cpu"), **dict(options))
        for module in model.modules():
            if not list(module.children()) or list(module.parameters(recurse=False)):
                module.register_forward_hook(note)
        model.eval()(models.made_up_batch(2, classes, image_size, sequence)[0])  # eval: dropout would draw
    return sum(layer.numel() for layer in model.parameters()), sum(sizes)


@functools.cache
def _alive(name: str, classes: int, image_size: int, sequence: int, options: Options) -> int:
    model = models.sized(name, classes, image_size, dict(options))
    with torch.device("meta"), torch.no_grad():
        inputs, _ = models.made_up_batch(2, classes, image_size, sequence)
        with _Live([*model.parameters(), *model.buffers()]) as live:
            model.eval()(inputs)
    return live.most // (2 * 4)


class _Live(TorchDispatchMode):
    """Notes how many bytes of tensors live at once, beside those of `others`."""

    def __init__(self, others: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.known = {id(tensor.untyped_storage()) for tensor in others}
        self.now = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and id(storage := tensor.untyped_storage()) not in self.known:
                self.known.add(id(storage))  # views share it
                self.now += storage.nbytes()
                weakref.finalize(storage, self.freed, id(storage), storage.nbytes())
        self.most = max(self.most, self.now)
        return out

    def freed(self, number: int, size: int) -> None:
        self.known.discard(number)
        self.now -= size


def _evaluated(config: Config, nodes: int) -> float:
    """Returns how many samples a rank evaluates at once."""
    if config.data.kind == "text":
        return max(1.0, TEST_ROWS / nodes)
    return min(TEST_BATCH, data.test_images(config.data) / nodes)


def _limits() -> list[tuple[int, int]]:
    from repro.cluster.limits import control_groups

    cached = ("active_file", "inactive_file")  # files that were read: a data set may fill any limit with them
    v1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", [f"total_{name}" for name in cached])
    return [*control_groups("memory", *v1), *control_groups("memory", "memory.max", "memory.current", cached)]
