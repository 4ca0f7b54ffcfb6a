"""Replays a rank's forward and backward pass as one CUDA graph, where starting the kernels takes longer than they do.

A small network has hundreds of kernels a pass, each a few microseconds long; a graph starts them all at once. It
holds what the passes launched while it was recorded: a network whose Python does something else from batch to batch
must do without, and so must one that reads a layer's weights elsewhere than in that layer, or computes one outside of
autocast (see at_once.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from repro import algorithms
from repro.cluster import threads
from repro.cluster.devices import of_first
from repro.config.schema import Config
from repro.models._dropout import Dropout

if TYPE_CHECKING:
    from repro.comm.collective import Collective

Pass = Callable[[Tensor, Tensor, int], Tensor]  # images, labels, micro-batches of a step -> its part of the loss

STREAMS = 32  # of one kind, on a GPU: PyTorch hands the first out again after the last
EAGER = 3  # passes before one is recorded, in which libraries take their memory and choose their kernels


class Replayed:
    """Does what a pass does, always the same one, which must leave its results in memory that stays.

    It does not hold the pass: a worker that held itself would stay, with its network, beside the next.
    """

    def __init__(self, control: Collective):
        self.control = control
        # of another kind than ranks' own: of each kind there are 32, and no rank may wait for one that is recorded
        self.stream, self.graph = torch.cuda.Stream(priority=-1), torch.cuda.CUDAGraph()
        self.calls = 0

    def __call__(self, one_pass: Pass, images: Tensor, labels: Tensor, parts: int) -> Tensor:
        """Returns what `one_pass` returned; the next call writes over it. Shapes and `parts` are always the same."""
        self.calls += 1
        if self.calls <= EAGER:
            return self.beside(one_pass, images, labels, parts)
        if self.calls == EAGER + 1:
            self.images, self.labels = images.clone(), labels.clone()
            self.record(one_pass, parts)
        self.images.copy_(images)
        self.labels.copy_(labels)
        self.graph.replay()
        return self.loss

    def beside(self, one_pass: Pass, images: Tensor, labels: Tensor, parts: int) -> Tensor:
        """Computes on the stream that is recorded later: what libraries set up for a stream is then there."""
        here = torch.cuda.current_stream()
        self.stream.wait_stream(here)
        with torch.cuda.stream(self.stream):
            loss = one_pass(images, labels, parts)
        here.wait_stream(self.stream)
        return loss

    def record(self, one_pass: Pass, parts: int) -> None:
        """Records one rank after the other, as ranks that are threads share what PyTorch records with. Collective."""
        for number in range(self.control.size):
            self.control.barrier()
            if number == self.control.rank:
                with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
                    self.loss = one_pass(self.images, self.labels, parts)
        self.control.barrier()


def refusals(config: Config, model: nn.Module) -> list[tuple[bool, str]]:
    """Returns each reason against graphs of `model`, and whether it holds for `config`. Raises ConfigError."""
    name = config.model.name
    return [
        (config.stages > 1, "a stage waits for others within its pass"),
        (config.overlap == "on", "overlap=on sends within backward"),
        (algorithms.of(config.algo).wraps, f"algo={config.algo.name} sends within backward"),
        (config.model.reads == "text", f"model={name} carries a state from batch to batch"),
        (any(isinstance(module, Dropout) for module in model.modules()), f"model={name} has dropout"),
        (
            threads.on_one_gpu(config) and config.nodes > STREAMS,
            f"more than {STREAMS} ranks that are threads on one GPU would share streams",
        ),
        # one that records gives memory back, on all GPUs of its process: on one where another waits, that is for good
        (threads.gpus(config) > 1, "ranks that are threads have a GPU each, and cluster=processes is not typed"),
        (of_first(config).type != "cuda", "needs a GPU, and the ranks compute on the CPU"),
    ]
