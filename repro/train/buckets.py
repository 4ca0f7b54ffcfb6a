"""The gradient in buckets: each has an algorithm of its own, which may start while backward fills the next.

Li et al., VLDB 2020 ("PyTorch Distributed"), section 3.2: the buckets are whole layers, from the last to the first.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.algorithms import Algorithm
from repro.collective import Collective
from repro.config import Config, ConfigError
from repro.hierarchical import Hierarchical

MB = 1 << 20
Shapes = Sequence[Sequence[int]]


def spans(shapes: Shapes, bucket_mb: float, itemsize: int = 4) -> list[slice]:
    """Slices of a flat gradient of layers with `shapes`, in the order in which backward fills them.

    A bucket ends with the layer that brings it to `bucket_mb`, as in DDP where a size is asked for (its default
    begins with a bucket of 1 MB instead).
    """
    sizes = list(map(math.prod, shapes))
    start = stop = sum(sizes)
    found = []
    for size in reversed(sizes):
        start -= size
        if (stop - start) * itemsize >= bucket_mb * MB or start == 0:
            found.append(slice(start, stop))
            stop = start
    return found


def load(
    config: Config, shapes: Shapes, device: torch.device, machines: Sequence[str] = (), rank: int = 0
) -> Algorithm:
    """The algorithm of `config` for layers of `shapes`: whole or in buckets, for all ranks or between machines.

    `machines`: the machine of every rank. Raises ConfigError.
    """
    check(config)

    def one(layers: Shapes) -> Algorithm:
        make = functools.partial(algorithms.load, config.algo, sum(map(math.prod, layers)), device, layers)
        return Hierarchical(make, machines, rank) if config.hierarchical else make()

    if config.bucket_mb is None:
        return one(shapes)
    parts = spans(shapes, config.bucket_mb)
    return Buckets(parts, [one(held(shapes, part)) for part in parts])


def check(config: Config) -> None:
    """Raises ConfigError where the algorithm cannot have the buckets, overlap or levels that are asked for."""
    algo, wants = config.algo, []
    if config.bucket_mb is not None:
        wants.append(f"bucket_mb={config.bucket_mb:g}")
    if config.overlap == "on":
        wants.append("overlap=on")
    if config.hierarchical:
        wants.append("hierarchical=true")
    if not wants:
        return
    sample = algorithms.load(algo, 8)
    if algorithms.mixes(sample) or hasattr(sample, "wrap"):
        what = "mixes weights" if algorithms.mixes(sample) else "makes its own buckets (algo.bucket_mb)"
        raise ConfigError(f"{' '.join(wants)}: algo={algo.name} {what}; leave that out, or type algo=dense")
    if config.bucket_mb is None and config.overlap == "on":
        raise ConfigError("overlap=on: one bucket is full only when backward ends; type bucket_mb=25 too")
    if algo.sparse and config.scope == "global" and config.bucket_mb is not None:
        raise ConfigError(
            f"{' '.join(wants)}: algo={algo.name} selects from the whole gradient, which is there when backward ends. "
            "Type scope=bucket to select from each bucket, or leave bucket_mb and overlap out"
        )
    if config.overlap == "on" and config.on_nonfinite == "skip":
        raise ConfigError("on_nonfinite=skip: with overlap=on part of the gradient is sent by then; type overlap=off")


def held(shapes: Shapes, span: slice) -> list[Sequence[int]]:
    """Those of the layers that are in a bucket."""
    ends = itertools.accumulate(map(math.prod, shapes))
    return [shape for shape, end in zip(shapes, ends, strict=True) if span.start < end <= span.stop]


def ready(spans: Sequence[slice], shapes: Shapes, moments: Sequence[float]) -> list[float]:
    """When each bucket's last layer has its gradient, of layers that have theirs at `moments`.

    Never before the bucket that goes first.
    """
    starts = [0, *itertools.accumulate(map(math.prod, shapes))]
    own = [
        max(moment for moment, start in zip(moments, starts, strict=False) if span.start <= start < span.stop)
        for span in spans
    ]
    return list(itertools.accumulate(own, max))


def shares(spans: Sequence[slice], seconds: float) -> list[float]:
    """Each bucket's share of the seconds that all of them take, by its size."""
    whole = sum(span.stop - span.start for span in spans)
    return [seconds * (span.stop - span.start) / whole for span in spans]


def like_ddp(ddp: Any, shapes: Shapes) -> Buckets:
    """The messages of DDP in the order of its buckets, for those who time them without it."""
    parts = spans(shapes, ddp.bucket_mb)
    return Buckets(parts, [ddp] * len(parts))


class Buckets:
    """An algorithm made of one for each bucket; bits are the same whether or not they overlap backward."""

    def __init__(self, spans: list[slice], parts: list[Algorithm]):
        self.spans, self.parts = spans, parts
        self.period = algorithms.period(parts[0])
        self.cuts: list[int] = []  # rounds counted at the end of each bucket of the last step
        self.overlap: Overlap | None = None

    @property
    def density(self) -> float:
        return self.parts[0].density

    @density.setter
    def density(self, value: float) -> None:
        for part in self.parts:
            part.density = value

    def skip_warmup(self) -> None:
        for part in self.parts:
            algorithms.skip_warmup(part)

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        if self.overlap is not None:
            self.overlap.finish()
            return gradient
        self.cuts = []
        for number in range(len(self.parts)):
            self.one(number, gradient, collective)
        return gradient

    def one(self, number: int, gradient: Tensor, collective: Collective) -> None:
        bucket = gradient[self.spans[number]]
        update = self.parts[number].step(bucket, collective)
        if update.data_ptr() != bucket.data_ptr():
            bucket.copy_(update)
        self.cuts.append(len(collective.traffic.rounds))

    def state_dict(self) -> dict[str, Any]:
        return {"buckets": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for part, own in zip(self.parts, state["buckets"], strict=True):
            part.load_state_dict(own)


class Overlap:
    """Starts each bucket on a thread of its own when its layers' gradients are there, in one order on all ranks."""

    def __init__(
        self,
        buckets: Buckets,
        layers: Sequence[Tensor],
        gradient: Tensor,
        collective: Collective,
        check: Callable[[Tensor], None],
    ):
        """`layers`: the parameters, whose `.grad` are views into `gradient`; `check` may raise on a full bucket."""
        self.buckets, self.gradient, self.collective, self.check = buckets, gradient, collective, check
        self.thread = ThreadPoolExecutor(1, "buckets", torch.set_num_threads, (torch.get_num_threads(),))
        self.stream = torch.cuda.Stream(gradient.device) if gradient.is_cuda else None
        self.armed, self.counts = False, [0] * len(buckets.spans)
        self.missing: list[int] = []
        self.started: list[Future[tuple[float, float]]] = []
        stop = gradient.numel()
        for layer in reversed(layers):
            number = next(n for n, span in enumerate(buckets.spans) if span.start < stop <= span.stop)
            stop -= layer.numel()
            self.counts[number] += 1
            layer.register_post_accumulate_grad_hook(functools.partial(self._filled, number))
        buckets.overlap = self

    def arm(self) -> None:
        """Before the backward pass that completes the gradient, not before those of earlier micro-batches."""
        self.missing, self.started, self.armed = list(self.counts), [], True
        self.buckets.cuts = []

    def finish(self) -> None:
        """Wait for all buckets; those of layers that got no gradient start here. Raises what their thread raised."""
        self.armed = False
        while len(self.started) < len(self.counts):
            self._start()
        began = time.perf_counter()
        try:
            times = [bucket.result() for bucket in self.started]
        finally:
            for bucket in self.started:
                bucket.cancel()
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        # What buckets did before this wait; how late it was woken after the last of them is no work of theirs.
        self.collective.hidden_s += sum(max(0.0, min(end, began) - start) for start, end in times)

    def _filled(self, number: int, layer: Tensor) -> None:
        if not self.armed:
            return
        self.missing[number] -= 1
        while len(self.started) < len(self.counts) and self.missing[len(self.started)] == 0:
            self._start()

    def _start(self) -> None:
        event = torch.cuda.current_stream().record_event() if self.stream is not None else None
        self.started.append(self.thread.submit(self._run, len(self.started), event))

    @torch.no_grad()
    def _run(self, number: int, event: torch.cuda.Event | None) -> tuple[float, float]:
        """When it began and ended."""
        began = time.perf_counter()
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            if self.stream is not None and event is not None:
                self.stream.wait_event(event)
            self.check(self.gradient[self.buckets.spans[number]])
            self.buckets.one(number, self.gradient, self.collective)
        return began, time.perf_counter()


def hidden_s(ready: Sequence[float], compress: Sequence[float], communicate: Sequence[float]) -> float:
    """Seconds of communication that backward covers, for buckets that are `ready` so long after a step began.

    One core computes and compresses, so that a bucket's compress delays all that backward does after it; one wire
    carries the buckets in their order. Backward ends with the last bucket.
    """
    delay, wire = 0.0, 0.0
    for moment, work, message in zip(ready, compress, communicate, strict=True):
        delay += work
        wire = max(wire, moment + delay) + message
    return sum(communicate) - (wire - ready[-1] - delay)
