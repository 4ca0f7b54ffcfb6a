"""Takes one step of S-SGD with sparse aggregation, on one rank; `repro.train.training` is the loop around it."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from repro import models
from repro.clip import clip, finite
from repro.clock import Stopwatch
from repro.comm.collective import Collective
from repro.comm.subset import join
from repro.comm.traffic import Traffic
from repro.config.schema import Config, RunError
from repro.density import entries
from repro.iteration_time import IterationTime
from repro.models import _carried
from repro.rng import derive
from repro.train import aggregator
from repro.train.at_once import AtOnce
from repro.train.buckets import Buckets, Overlap
from repro.train.cuda_graph import Replayed
from repro.train.pipeline import Pipeline
from repro.train.precision import arithmetic
from repro.train.replica import Replica
from repro.train.split import Split

if TYPE_CHECKING:
    from repro.cluster.ranks import Rank
    from repro.data import Dataset

Batch = tuple[Tensor, Tensor]  # images [B, 3, H, W], labels [B]; or words [B, T], labels [B * T]


@dataclass(frozen=True)
class Step:
    """Says what one step did on this rank. Times are wall clock: a node's only if the rank has a machine to itself."""

    loss: float
    traffic: Traffic
    time: IterationTime
    selected: int | None = None  # entries of this rank's selection: not always k if the selector is approximate
    activations: int = 0  # of the bytes sent, those to other stages of this rank's pipeline
    skipped: bool = False


class Worker:
    """Holds all that one rank trains with; `alone`: timed without the other ranks, nothing is sent inside backward."""

    def __init__(self, config: Config, rank: Rank, data: Dataset, alone: bool = False, split: Split | None = None):
        """`split`: how the network is divided into stages, of which this rank then has its own."""
        self.config, self.rank, self.data = config, rank, data
        self.step = 0

        self.generator = torch.Generator(rank.device).manual_seed(derive(config.seed, rank.number, "dropout"))
        model = models.load(
            config.model.name, data.classes, data.image_size, config.seed, self.generator, **config.model.options
        )
        self.split, self.activations = split, 0
        self.pipeline: Pipeline | None = None
        self.copy, self.stage = divmod(rank.number, config.stages)
        self.peers, self.agreement = rank.collective, rank.control  # the ranks that hold the same parameters
        if split is not None:
            from repro.comm import stage_messages  # loads DeviceMesh

            row, column = stage_messages.grid(rank.collective, rank.control, config.stages)
            model = split.modules(config.model.name, model)[self.stage]
            self.peers, self.agreement = column.collective, column.control
        # momentum after aggregation makes the decay 1 / (1 - momentum) times as strong; the algorithm's does not see it
        weight_decay = config.weight_decay * config.algo.amplification
        self.replica = Replica(model.to(rank.device), config.momentum, weight_decay, config.weight_decay_of)
        layers = list(model.parameters())

        self.algorithm = aggregator.load(config, [layer.shape for layer in layers], rank, alone)
        self.spans = [slice(0, self.replica.gradient.numel())]  # of the gradient; k are selected from each
        self.overlap: Overlap | None = None
        if isinstance(self.algorithm, Buckets):
            self.spans = self.algorithm.spans
            if config.overlap == "on" and not alone:
                me = weakref.proxy(self)  # a worker that held itself would stay, with its network, beside the next
                self.overlap = Overlap(
                    self.algorithm,
                    layers,
                    self.replica.gradient,
                    rank.collective,
                    lambda part: me.stop_unless_finite(part),
                )
        self.forward: Any = model if alone else self.algorithm.wrap(model, rank.collective)
        self.algorithm.begin(self.replica.parameters.data)
        if split is not None:
            self.pipeline = Pipeline(config, rank, row, split, model)
            rank.parts = [self.pipeline.collective, self.pipeline.control, self.peers, self.agreement]

        # a rank that waits inside backward for another one must not keep that one from its turn
        self.turn: Callable[[], AbstractContextManager[object]] = lambda: rank.turns
        if self.forward is not model:
            self.turn = lambda: rank.waits("DistributedDataParallel's backward")
        elif self.overlap is not None:
            self.turn = nullcontext
        self.graph = Replayed(rank.control) if config.cuda_graph == "on" and not alone else None
        self.at_once = None if self.graph is None else AtOnce(self.replica, config.precision == "bfloat16")

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yields this rank's micro-batches of an epoch, from micro-batch `start` of each node on, on its device.

        The first and the last stage of a pipeline read those of all its nodes, as many of each node as a step has.
        """
        config, rank = self.config, self.rank
        if start == 0:
            _carried.reset(self.replica.model)  # a text is read from its beginning in each epoch
        first = self.copy * config.stages
        nodes = [
            self.data.batches(epoch, node, rank.size, config.batch_per_node, start)
            for node in range(first, first + config.stages)
        ]
        if 0 < self.stage < config.stages - 1:  # what is in them does not matter
            nodes = [itertools.repeat((torch.empty(0, 3, 1, 1), torch.empty(0)))]
        for inputs, labels in itertools.chain.from_iterable(taken(nodes, config.accumulate)):
            inputs = laid_out(inputs).to(rank.device, non_blocking=True)
            yield inputs, labels.to(rank.device, non_blocking=True)

    def logits(self, inputs: Tensor, forward: Any = None) -> Tensor:
        """Returns float32 logits [B, classes] of the network that is trained, or of `forward`."""
        with arithmetic(self.config.precision, self.rank.device.type):
            return (forward or self.forward)(inputs).float()

    def backward(self, batches: list[Batch]) -> float:
        """Leaves the mean gradient of the micro-batches in `replica.gradient`, clipped; returns their mean loss."""
        with self.turn():
            return self._backward(batches)

    def _backward(self, batches: list[Batch]) -> float:
        self.replica.gradient.zero_()
        if self.pipeline is not None:
            mean, self.activations = self.pipeline.backward(batches)
            return mean
        total = torch.zeros((), device=self.rank.device)
        for number, (inputs, labels) in enumerate(batches, 1):
            last = number == len(batches)
            if last and self.overlap is not None:
                self.overlap.arm()
            with nullcontext() if last or self.forward is self.replica.model else self.forward.no_sync():
                if self.graph is not None:
                    total += self.graph(self.add_gradient, inputs, labels, len(batches))
                else:
                    total += self.add_gradient(inputs, labels, len(batches))
        if self.config.clip_grad:
            clip(self.replica.gradient, self.config.clip_grad)
        return total.item()

    def add_gradient(self, inputs: Tensor, labels: Tensor, parts: int) -> Tensor:
        """Adds to `replica.gradient` that of the mean loss, divided by `parts`, which it returns."""

        def loss_of(forward: Any = None) -> Tensor:
            return F.cross_entropy(self.logits(inputs, forward), labels) / parts

        if self.at_once is not None:
            return self.at_once.add_gradient(loss_of)
        loss = loss_of()
        loss.backward()
        return loss.detach()

    def settle(self) -> None:
        """Makes the algorithm send what it sends from its second backward on; what that changes is to be loaded after.

        Collective.
        """
        if self.algorithm.settles:
            self.backward(list(itertools.islice(self.batches(0), 1)))

    def entries(self, density: float) -> int:
        """Returns k: of the whole gradient, or the sum over its buckets."""
        return sum(entries(density, span.stop - span.start) for span in self.spans)

    def stop_unless_finite(self, gradient: Tensor) -> None:
        """Raises RunError if `gradient` is not finite."""
        if not finite(gradient):
            raise RunError(
                f"step {self.step}: the gradient of rank {self.rank.number} is not finite. Lower lr, or type "
                "on_nonfinite=skip to leave such steps out"
            )


def train_step(worker: Worker, step: int, batches: list[Batch], lr: float, density: float) -> Step:
    """Runs iteration `step`: local gradient, the algorithm's average update, SGD with momentum, mixing if it mixes."""
    collective, peers, replica, algorithm = worker.rank.collective, worker.peers, worker.replica, worker.algorithm
    collective.traffic, communicated_s, hidden_s = Traffic(), collective.seconds, collective.hidden_s
    algorithm.density, worker.step = density, step  # before backward, during which buckets may be sent
    before = replica.forward_state() if worker.config.on_nonfinite == "skip" else None
    timer, agreed_s = Stopwatch(), worker.rank.control.seconds

    with timer("compute"):
        loss = worker.backward(batches)
        skip = not all_finite(worker)
    agreed_s = worker.rank.control.seconds - agreed_s  # on whether to skip: who is early waits there for the slowest
    between_s = agreed_s  # inside compute's seconds, and no part of it
    if worker.pipeline is not None:
        between_s += collective.seconds - communicated_s  # stages, waits included
    if skip:
        if before is not None:
            replica.put_back(before)  # one bad batch would stay in BatchNorm's statistics for good
        if worker.forward is not replica.model:
            algorithm.step(replica.gradient, peers)  # counts what DDP has sent inside backward
        time = IterationTime(timer["compute"] - between_s, 0.0, between_s)
        return Step(loss, collective.traffic, time, activations=worker.activations, skipped=True)

    with timer("aggregate"):
        update = algorithm.step(replica.gradient, peers)
    with timer("compute"):
        replica.apply(update, lr)
    with timer("aggregate"):
        algorithm.mix(replica.parameters.data, peers)
    if peers is not collective:
        join(collective, peers)

    communicate_s = agreed_s + collective.seconds - communicated_s
    hidden_s = collective.hidden_s - hidden_s
    compress_s = timer["aggregate"] - (communicate_s - between_s - hidden_s)
    time = IterationTime(timer["compute"] - between_s, compress_s, communicate_s, hidden_s)
    return Step(loss, collective.traffic, time, algorithm.selected, worker.activations)


def taken(nodes: list[Iterator[Batch]], count: int) -> Iterator[list[Batch]]:
    """Yields `count` items of each iterator in turn, until the first has no more."""
    while True:
        for node in nodes:
            batch = list(itertools.islice(node, count))
            if not batch:
                return
            yield batch


def laid_out(inputs: Tensor) -> Tensor:
    """Returns images with the channels last, for which convolutions are about a sixth faster on a CPU (ResNet-20)."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def all_finite(worker: Worker) -> bool:
    """Returns whether every rank's gradient is finite; with on_nonfinite=stop, a rank whose is not raises RunError."""
    if worker.config.on_nonfinite == "skip":
        return not any_rank(worker.rank.control, not finite(worker.replica.gradient))
    if worker.overlap is None:  # else each bucket was checked before it was sent
        worker.stop_unless_finite(worker.replica.gradient)
    return True


def any_rank(control: Collective, flag: bool) -> bool:
    """Returns whether `flag` is true on any rank: all ranks get the same answer. Collective."""
    return bool(control.all_reduce(torch.tensor([float(flag)])).item())
