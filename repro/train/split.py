"""Divides a network into stages of about equal time: measured block by block, cut so that the slowest is least slow."""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from repro import models
from repro.clock import clock
from repro.config.schema import Config, RunError
from repro.json_text import json_text
from repro.rng import derive
from repro.train.precision import arithmetic
from repro.whole_files import write_whole

if TYPE_CHECKING:
    from repro.cluster.ranks import Rank

FILE = "stages.json"  # in the run folder: a run that goes on keeps its stages
REPEATS = 5
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Block:
    """Describes a block of a network: the seconds of one micro-batch, and what it hands on of it."""

    forward_s: float
    backward_s: float
    parameters: int
    shape: list[int]  # of its output, the batch first
    dtype: str
    kept: int  # bytes that its layers hand on, which backward needs

    @property
    def nbytes(self) -> int:
        """Returns the bytes of its output."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


@dataclass(frozen=True)
class Split:
    """Holds the blocks of a network, and the places of those with which another stage than the first begins."""

    blocks: list[Block]
    cuts: list[int]

    def parts(self, blocks: Sequence[Any]) -> list[list[Any]]:
        """Returns for each stage its part of `blocks`, one item of which is of each block."""
        ends = [0, *self.cuts, len(self.blocks)]
        return [list(blocks[start:stop]) for start, stop in pairwise(ends)]

    def modules(self, name: str, model: nn.Module) -> list[nn.Module]:
        """Returns the stages of `model`, the network `name`: they share its parameters."""
        return [nn.Sequential(*part) for part in self.parts(models.blocks(name, model))]


def partition(seconds: Sequence[float], parts: int) -> list[int]:
    """Returns the places at which to cut `seconds` into so many runs, none empty, that the largest sum is least."""
    ends = [0.0, *accumulate(seconds)]

    @functools.cache
    def best(start: int, left: int) -> tuple[float, tuple[int, ...]]:
        if left == 1:
            return ends[-1] - ends[start], ()
        found = []
        for cut in range(start + 1, len(seconds) - left + 2):
            most, cuts = best(cut, left - 1)
            found.append((max(ends[cut] - ends[start], most), (cut, *cuts)))
        return min(found)

    return list(best(0, parts)[1])


def of_run(config: Config, rank: Rank) -> Split | None:
    """Returns the stages of a run on all ranks, None where it has none. Collective; rank 0 measures once a run.

    Raises RunError where they are lost and the run has checkpoints, which other cuts could not load.
    """
    if config.stages == 1:
        return None
    split = None
    if rank.number == 0:
        try:
            split = kept(config.folder)
        except RunError as lost:
            if not config.cuts and any((config.folder / "checkpoints").glob("step-*")):
                raise RunError(f"{lost}; type cuts=[...] as it had them, or results=FOLDER to begin anew") from None
            blocks = measured(config, rank.device)
            split = Split(blocks, config.cuts or balanced(blocks, config.stages))
            write_whole(config.folder / FILE, json_text(asdict(split), indent=1) + "\n")
    found: Split = rank.control.gather_objects(split)[0]
    return found


def balanced(blocks: Sequence[Block], stages: int) -> list[int]:
    return partition([block.forward_s + block.backward_s for block in blocks], stages)


def kept(folder: Path) -> Split:
    """Returns the stages of the run in `folder`. Raises RunError where it does not say them."""
    try:
        said = json.loads((folder / FILE).read_text())
        return Split([Block(**block) for block in said["blocks"]], said["cuts"])
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"{folder / FILE}, the stages of the run, is missing or damaged") from None


def measured(config: Config, device: torch.device) -> list[Block]:
    """Times each block of the network on one micro-batch of random images, on this rank alone."""
    data, generator = config.data, torch.Generator(device)
    model = models.load(
        config.model.name, data.classes, data.image_size, config.seed, generator, **config.model.options
    )
    blocks = models.blocks(config.model.name, model.to(device))
    drawn = torch.Generator(device).manual_seed(derive(config.seed, "timing"))
    shape = config.batch_per_node, 3, data.image_size, data.image_size
    images = torch.randn(shape, device=device, generator=drawn)
    images = images.to(memory_format=torch.channels_last)

    def once() -> tuple[list[float], list[float]]:
        forward, backward, x, passed = list[float](), list[float](), images, list[tuple[Tensor, Tensor]]()
        for block in blocks:
            with arithmetic(config.precision, device.type):
                seconds, y = _timed(functools.partial(block, x))
            forward.append(seconds)
            passed.append((x, y))
            x = y.detach().requires_grad_()
        for inputs, output in reversed(passed):
            gradient = torch.ones_like(output) if x.grad is None else x.grad
            backward.insert(0, _timed(functools.partial(output.backward, gradient))[0])
            x = inputs
        shapes[:] = [(list(output.shape), str(output.dtype).removeprefix("torch.")) for _, output in passed]
        return forward, backward

    shapes: list[tuple[list[int], str]] = []
    once()  # warms up
    forward, backward = (
        [statistics.median(each) for each in zip(*lines, strict=True)]
        for lines in zip(*(once() for _ in range(REPEATS)), strict=True)
    )
    sizes = [sum(p.numel() for p in block.parameters()) for block in blocks]
    held = activations(blocks, images)
    return [
        Block(f, b, size, *shape, kept_bytes)
        for f, b, size, shape, kept_bytes in zip(forward, backward, sizes, shapes, held, strict=True)
    ]


def activations(blocks: Sequence[nn.Module], x: Tensor) -> list[int]:
    """Returns the bytes of the outputs of all layers inside each block, in float32."""
    found = []
    for block in blocks:
        sizes: list[int] = []
        hooks = [
            layer.register_forward_hook(
                lambda module, inputs, output, sizes=sizes: sizes.append(4 * models.numel(output))
            )
            for layer in block.modules()
            if not list(layer.children()) or list(layer.parameters(recurse=False))
        ]
        with torch.no_grad():
            x = block(x)
        for hook in hooks:
            hook.remove()
        found.append(sum(sizes))
    return found


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    began = clock()
    result = action()
    return clock() - began, result
