"""Runs one stage of a network in a pipeline of ranks: torch's 1F1B (Narayanan et al., PipeDream, SOSP 2019)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from repro.comm.subset import join
from repro.config.schema import Config
from repro.train.precision import arithmetic
from repro.train.split import DTYPES, Split

if TYPE_CHECKING:
    from repro.cluster.ranks import Rank
    from repro.comm.stage_messages import StageMessages


class Stage(nn.Module):
    def __init__(self, layers: nn.Module, device: torch.device, precision: str):
        super().__init__()
        self.layers, self.device, self.precision = layers, device, precision

    def forward(self, x: Tensor) -> Tensor:
        with arithmetic(self.precision, self.device.type):
            y: Tensor = self.layers(x)
        return y


class Pipeline:
    """Connects a rank to the others of its pipeline, a row of the mesh of copies x stages."""

    def __init__(self, config: Config, rank: Rank, row: StageMessages, split: Split, layers: nn.Module):
        """`layers`: those of this rank's stage, whose parameters have their gradients already."""
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B  # takes seconds

        self.whole, self.micro_batches = rank.collective, config.micro_batches
        self.collective, self.control = row.collective, row.control
        number, size = self.collective.rank, self.collective.size
        data = config.data
        shapes = [([config.batch_per_node, 3, data.image_size, data.image_size], "float32")]
        shapes += [(part[-1].shape, part[-1].dtype) for part in split.parts(split.blocks)]
        came, handed_on = (_like(*shape, rank.device) for shape in shapes[number : number + 2])
        stage = Stage(layers, rank.device, config.precision)
        self.stage = PipelineStage(
            stage, number, size, rank.device, came.requires_grad_(number > 0), handed_on.requires_grad_(), group=row,
        )  # fmt: skip
        loss = functools.partial(_loss, config.micro_batches)  # a bound method would hold this, and this the schedule
        self.schedule = Schedule1F1B(self.stage, self.micro_batches, loss, scale_grads=False)

    @property
    def last(self) -> int:
        return self.collective.size - 1

    def backward(self, batches: list[tuple[Tensor, Tensor]]) -> tuple[float, int]:
        """Adds the gradient of the micro-batches' mean loss; returns this loss and the bytes sent to other stages.

        Collective among the stages, of which the first and the last read `batches`.
        """
        losses: list[Tensor] = []
        number = self.collective.rank
        images = [(images,) for images, _ in batches] if number == 0 else None
        labels = [labels for _, labels in batches] if number == self.last else None
        self.schedule.step(arg_mbs=images, target_mbs=labels, losses=losses, return_outputs=False)
        sent = self.collective.traffic.bytes_sent
        join(self.whole, self.collective)
        total = torch.stack(losses).sum() if losses else torch.zeros(())
        return self.control.broadcast(total.detach().cpu(), root=self.last).item(), sent


def _loss(micro_batches: int, output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output.float(), labels) / micro_batches


def _like(shape: list[int], dtype: str, device: torch.device) -> Tensor:
    """Returns a tensor as a stage gets it and hands it on: images have the channels last."""
    layout = torch.channels_last if len(shape) == 4 else torch.contiguous_format
    return torch.empty(shape, dtype=DTYPES[dtype], device=device, memory_format=layout)
