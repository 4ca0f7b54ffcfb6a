"""One step of S-SGD with sparse aggregation, on one rank; `repro.training` is the loop around it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from repro import algorithms, buckets, models, together
from repro.calibrate import synchronize
from repro.collective import Collective
from repro.config import Config, RunError
from repro.network import Traffic
from repro.replica import Replica
from repro.rng import derive
from repro.schedule import entries

if TYPE_CHECKING:
    from repro.data import Dataset
    from repro.ranks import Rank

Batch = tuple[Tensor, Tensor]  # images [B, 3, H, W], labels [B]


@dataclass(frozen=True)
class Step:
    """What one step did on this rank. Times are wall clock: a node's only if the rank has its machine to itself."""

    loss: float
    traffic: Traffic
    compute_s: float
    compress_s: float
    communicate_s: float
    hidden_s: float = 0.0  # of the last two, what went on beside the rest: the step took their sum less this
    selected: int | None = None  # entries of this rank's selection: not always k if the selector is approximate
    skipped: bool = False


class Worker:
    """All that one rank trains with; `alone`: to be timed without the others, so nothing is sent inside backward."""

    def __init__(self, config: Config, rank: Rank, data: Dataset, alone: bool = False):
        self.config, self.rank, self.data = config, rank, data
        self.generator = torch.Generator(rank.device).manual_seed(derive(config.seed, rank.rank, "dropout"))
        model = models.load(
            config.model.name, data.classes, data.image_size, config.seed, self.generator, **config.model.options
        )
        self.replica = Replica(model.to(rank.device), config.momentum, config.weight_decay)
        layers = list(model.parameters())
        shapes = [layer.shape for layer in layers]
        self.algorithm = buckets.load(config, shapes, rank.device, rank.machines, rank.rank)
        self.overlap: buckets.Overlap | None = None
        if isinstance(self.algorithm, buckets.Buckets) and config.overlap == "on" and not alone:
            self.overlap = buckets.Overlap(
                self.algorithm, layers, self.replica.gradient, rank.collective, self.stop_unless_finite
            )
        self.forward: Any = self.replica.model
        if hasattr(self.algorithm, "wrap"):
            if alone:
                self.algorithm = buckets.like_ddp(self.algorithm, shapes)
            else:
                self.forward = self.algorithm.wrap(self.replica.model, rank.collective)
        if hasattr(self.algorithm, "begin"):
            self.algorithm.begin(self.replica.parameters.data)
        possible = together.wanted(config, model, rank.together is not None)
        self.together = rank.together if possible and not alone else None
        # who waits for another rank inside backward must not keep it from its turn
        sends = self.overlap is not None or self.forward is not self.replica.model
        self.turn = nullcontext() if sends or self.together is not None else rank.turns
        self.step = 0
        self.autocast = config.precision == "bfloat16"

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This rank's micro-batches of an epoch, from micro-batch `start` on, on its device."""
        config, rank = self.config, self.rank
        for images, labels in self.data.batches(epoch, rank.rank, rank.size, config.batch_per_node, start):
            # convolutions are about a sixth faster on a CPU with the channels last (ResNet-20, float32)
            images = images.to(rank.device, non_blocking=True, memory_format=torch.channels_last)
            yield images, labels.to(rank.device, non_blocking=True)

    def logits(self, images: Tensor) -> Tensor:
        with torch.autocast(self.rank.device.type, torch.bfloat16, enabled=self.autocast):
            return self.forward(images).float()

    def backward(self, batches: list[Batch]) -> float:
        """Leave the mean gradient of the micro-batches in `replica.gradient`; return their mean loss."""
        with self.turn:
            return self._backward(batches)

    def _backward(self, batches: list[Batch]) -> float:
        self.replica.gradient.zero_()
        total = torch.zeros((), device=self.rank.device)
        for number, (images, labels) in enumerate(batches, 1):
            if self.together is not None:
                mine = self.replica, images, labels
                total += self.together.backward(mine, 1 / len(batches), self.rank.control)
                continue
            last = number == len(batches)
            if last and self.overlap is not None:
                self.overlap.arm()
            with nullcontext() if last or self.forward is self.replica.model else self.forward.no_sync():
                loss = F.cross_entropy(self.logits(images), labels) / len(batches)
                loss.backward()
            total += loss.detach()
        return total.item()

    def entries(self, density: float) -> int:
        """k: of the whole gradient, or of all its buckets together."""
        whole = [slice(0, self.replica.gradient.numel())]
        return sum(entries(density, span.stop - span.start) for span in getattr(self.algorithm, "spans", whole))

    def stop_unless_finite(self, gradient: Tensor) -> None:
        """Raises RunError."""
        if not finite(gradient):
            raise RunError(
                f"step {self.step}: the gradient of rank {self.rank.rank} is not finite. Lower lr, or type "
                "on_nonfinite=skip to leave such steps out"
            )


def train_step(worker: Worker, step: int, batches: list[Batch], lr: float, density: float) -> Step:
    """Iteration `step`: local gradient, the algorithm's average update, SGD with momentum, weights mixed if it does."""
    collective, replica, algorithm = worker.rank.collective, worker.replica, worker.algorithm
    collective.traffic, waited, hidden = Traffic(), collective.seconds, collective.hidden_s
    algorithm.density, worker.step = density, step  # before backward, beside which buckets may be sent
    began = _clock()
    loss = worker.backward(batches)
    skip = not all_finite(worker)
    computed = _clock()
    if skip:
        return Step(loss, collective.traffic, computed - began, 0.0, 0.0, skipped=True)

    update = algorithm.step(replica.gradient, collective)
    aggregated = _clock()

    replica.apply(update, lr)
    applied = _clock()
    if algorithms.mixes(algorithm):
        algorithm.mix(replica.parameters.data, collective)
    done = _clock()
    communicate, hidden = collective.seconds - waited, collective.hidden_s - hidden
    compute = (computed - began) + (applied - aggregated)
    compress = (aggregated - computed) + (done - applied) - (communicate - hidden)
    parts = getattr(algorithm, "parts", [algorithm])
    selected = sum(part.memory.selected for part in parts) if hasattr(parts[0], "memory") else None
    return Step(loss, collective.traffic, compute, compress, communicate, hidden, selected)


def finite(x: Tensor) -> bool:
    """Its sum tells as a rule, without a mask of its size; finite numbers can overflow in it, so then each counts."""
    return bool(torch.isfinite(x.sum())) or bool(torch.isfinite(x).all())


def all_finite(worker: Worker) -> bool:
    """Whether every rank's gradient is finite; with on_nonfinite=stop, a rank whose own is not raises RunError."""
    if worker.config.on_nonfinite == "skip":
        return not any_rank(worker.rank.control, not finite(worker.replica.gradient))
    if worker.overlap is None:  # else each bucket was looked at before it was sent
        worker.stop_unless_finite(worker.replica.gradient)
    return True


def any_rank(control: Collective, flag: bool) -> bool:
    """Whether `flag` is true on any rank: all ranks get the same answer. Collective."""
    return bool(control.all_reduce(torch.tensor([float(flag)])).item())


def _clock() -> float:
    synchronize()
    return time.perf_counter()
