"""One step of S-SGD with sparse aggregation, on one rank; `repro.training` is the loop around it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from repro import algorithms, models
from repro.calibrate import synchronize
from repro.collective import Collective
from repro.config import Config, RunError
from repro.network import Traffic
from repro.replica import Replica
from repro.rng import derive

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
    """All that one rank trains with."""

    def __init__(self, config: Config, rank: Rank, data: Dataset):
        self.config, self.rank, self.data = config, rank, data
        self.generator = torch.Generator(rank.device).manual_seed(derive(config.seed, rank.rank, "dropout"))
        model = models.load(
            config.model.name, data.classes, data.image_size, config.seed, self.generator, **config.model.options
        )
        self.replica = Replica(model.to(rank.device), config.momentum, config.weight_decay)
        self.algorithm = algorithms.load(config.algo, self.replica.gradient.numel(), rank.device)
        if hasattr(self.algorithm, "begin"):
            self.algorithm.begin(self.replica.parameters.data)
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
            return self.replica.model(images).float()

    def backward(self, batches: list[Batch]) -> float:
        """Leave the mean gradient of the micro-batches in `replica.gradient`; return their mean loss."""
        self.replica.gradient.zero_()
        total = torch.zeros((), device=self.rank.device)
        for images, labels in batches:
            loss = F.cross_entropy(self.logits(images), labels) / len(batches)
            loss.backward()
            total += loss.detach()
        return total.item()


def train_step(worker: Worker, step: int, batches: list[Batch], lr: float, density: float) -> Step:
    """Iteration `step`: local gradient, the algorithm's average update, SGD with momentum, weights mixed if it does."""
    collective, replica, algorithm = worker.rank.collective, worker.replica, worker.algorithm
    collective.traffic, waited, hidden = Traffic(), collective.seconds, collective.hidden_s
    began = _clock()
    loss = worker.backward(batches)
    skip = not all_finite(worker, step, replica.gradient)
    computed = _clock()
    if skip:
        return Step(loss, collective.traffic, computed - began, 0.0, 0.0, skipped=True)

    algorithm.density = density
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
    selected = algorithm.memory.selected if hasattr(algorithm, "memory") else None
    return Step(loss, collective.traffic, compute, compress, communicate, hidden, selected)


def all_finite(worker: Worker, step: int, gradient: Tensor) -> bool:
    """Whether every rank's gradient is finite; with on_nonfinite=stop, a rank whose own is not raises RunError."""
    finite = bool(torch.isfinite(gradient.sum())) or bool(torch.isfinite(gradient).all())
    if worker.config.on_nonfinite == "skip":
        return not any_rank(worker.rank.control, not finite)
    if not finite:
        raise RunError(
            f"step {step}: the gradient of rank {worker.rank.rank} is not finite. Lower lr, or type "
            "on_nonfinite=skip to leave such steps out"
        )
    return True


def any_rank(control: Collective, flag: bool) -> bool:
    """Whether `flag` is true on any rank: all ranks get the same answer. Collective."""
    return bool(control.all_reduce(torch.tensor([float(flag)])).item())


def _clock() -> float:
    synchronize()
    return time.perf_counter()
