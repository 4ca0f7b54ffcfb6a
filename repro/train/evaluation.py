"""Computes loss and accuracy, or perplexity, on the test set, divided among the ranks.

It is that of their common weights or of their average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from repro import metric, models
from repro.comm.collective import Collective
from repro.config.schema import RunError
from repro.data._shards import TEST_BATCH
from repro.models import _carried

if TYPE_CHECKING:
    from repro.train.replica import Replica
    from repro.train.step import Worker


@torch.no_grad()
def evaluate(worker: Worker, seen: Callable[[], None] = lambda: None) -> dict[str, float]:
    """Returns test loss and accuracy, of text perplexity, a word; calls `seen` after each batch. Collective.

    Averages BatchNorm's statistics over the ranks, and weights that differ, and restores them at the end. For such
    weights it adds `consensus_distance`: the root mean square distance of the ranks' weights from their mean.
    Raises RunError where no image can be decoded.
    """
    rank, replica = worker.rank, worker.replica
    mixes = worker.algorithm.mixes
    with (
        averaged(differing(replica, mixes), worker.agreement) as distances,
        _carried.another_text(replica.model),
    ):
        network = replica.model if worker.pipeline is None else whole(worker, worker.pipeline.control)
        replica.model.eval()
        sums = torch.zeros(3, dtype=torch.float64)  # loss, correct, labels
        for inputs, labels in worker.data.test_batches(rank.number, rank.size, TEST_BATCH):
            labels = labels.to(rank.device)
            with rank.turns:  # not `worker.turn`: nothing is sent meanwhile, and a rank that hangs here waits for none
                logits = worker.logits(inputs.to(rank.device), network)
            loss = F.cross_entropy(logits, labels, reduction="sum")
            sums += torch.stack([loss, (logits.argmax(1) == labels).sum(), loss.new_tensor(len(labels))]).double().cpu()
            seen()
        replica.model.train()
    rank.control.all_reduce(sums)
    if sums[2] == 0:  # on all ranks alike
        raise RunError(
            "no image of the test set can be decoded, so that nothing can be evaluated. Repair the images in "
            f"{worker.config.data.root}, or name another folder with data.root=FOLDER"
        )
    loss, share = sums[0] / sums[2], sums[1] / sums[2]
    good = {metric.ACCURACY: share, metric.PERPLEXITY: loss.exp()}[worker.config.data.metric]
    metrics = {"test_loss": loss.item(), worker.config.data.metric.key: good.item()}
    if mixes and worker.pipeline is not None:  # the squares of the stages' distances add up
        squares = worker.pipeline.control.all_reduce(torch.tensor([distances[-1] ** 2], dtype=torch.float64))
        distances[-1] = math.sqrt(squares.item())
    return metrics | ({"consensus_distance": distances[-1]} if mixes else {})


def whole(worker: Worker, control: Collective) -> nn.Module:
    """Returns the network of all stages on each rank of a pipeline, to evaluate. Collective."""
    config, split, model = worker.config, worker.split, worker.replica.model
    assert split is not None  # noqa: S101  (for the type checker: a pipeline has one)
    name, data = config.model.name, config.data
    network = models.load(name, data.classes, data.image_size, 0, worker.generator, **config.model.options)
    for stage, part in enumerate(split.modules(name, network.to(worker.rank.device).eval())):
        own = values(model if stage == worker.stage else part)
        flat = control.broadcast(torch.cat([one.reshape(-1) for one in own]), root=stage)
        theirs = values(part)
        for one, new in zip(theirs, flat.split([one.numel() for one in theirs]), strict=True):
            one.copy_(new.view_as(one))
    return network


def values(model: nn.Module) -> list[Tensor]:
    """Returns the parameters and BatchNorm's statistics."""
    return [*(p.data for p in model.parameters()), *(b for b in model.buffers() if b.is_floating_point())]


def differing(replica: Replica, mixes: bool) -> list[Tensor]:
    """Returns what may differ between the ranks and is evaluated, and exported, as their mean."""
    return [*replica.statistics(), *([replica.parameters.data] if mixes else [])]


@contextmanager
def averaged(tensors: list[Tensor], control: Collective) -> Iterator[list[float]]:
    """Makes, while inside, each of `tensors` its mean over the ranks; yields the ranks' RMS distances from it."""
    originals = [tensor.clone() for tensor in tensors]
    distances = []
    for tensor, before in zip(tensors, originals, strict=True):
        control.all_reduce(tensor).div_(control.size)
        square = control.all_reduce((before - tensor).double().square().sum()[None])
        distances.append(math.sqrt(square.item() / control.size))
    try:
        yield distances
    finally:
        for tensor, before in zip(tensors, originals, strict=True):
            tensor.copy_(before)
