"""Loss and accuracy on the test set, shared out over the ranks: of what they hold alike, or of their average."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from repro.algorithms import mixes
from repro.collective import Collective

if TYPE_CHECKING:
    from repro.trainer import Worker

BATCH = 250


@torch.no_grad()
def evaluate(worker: Worker) -> dict[str, float]:
    """Collective. BatchNorm's statistics are averaged over the ranks, and so are weights that differ; all put back.

    Then there is also `consensus_distance`: the root mean square distance of the ranks' weights from their mean.
    """
    rank, replica = worker.rank, worker.replica
    found: dict[str, float] = {}
    own = [*replica.statistics(), *([replica.parameters.data] if mixes(worker.algorithm) else [])]
    with averaged(own, rank.control) as distances:
        replica.model.eval()
        sums = torch.zeros(3, dtype=torch.float64)  # loss, correct, samples
        for images, labels in worker.data.test_batches(rank.rank, rank.size, BATCH):
            labels = labels.to(rank.device)
            with worker.turn:
                logits = worker.logits(images.to(rank.device))
            loss = F.cross_entropy(logits, labels, reduction="sum")
            sums += torch.stack([loss, (logits.argmax(1) == labels).sum(), loss.new_tensor(len(labels))]).double().cpu()
        replica.model.train()
    rank.control.all_reduce(sums)
    found |= {"test_loss": (sums[0] / sums[2]).item(), "test_accuracy": (sums[1] / sums[2]).item()}
    if mixes(worker.algorithm):
        found["consensus_distance"] = distances[-1]
    return found


@contextmanager
def averaged(tensors: list[Tensor], control: Collective) -> Iterator[list[float]]:
    """Inside, each of `tensors` is its mean over the ranks; yields how far the ranks' own are from it (see above)."""
    own = [tensor.clone() for tensor in tensors]
    distances = []
    for tensor, before in zip(tensors, own, strict=True):
        control.all_reduce(tensor).div_(control.size)
        square = control.all_reduce((before - tensor).double().square().sum()[None])
        distances.append(math.sqrt(square.item() / control.size))
    try:
        yield distances
    finally:
        for tensor, before in zip(tensors, own, strict=True):
            tensor.copy_(before)
