"""Divides the gradient into buckets: each has its own algorithm, which may start while backward fills the next.

Li et al., VLDB 2020 ("PyTorch Distributed"), section 3.2: the buckets are whole layers, from the last to the first.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from repro.algorithms import Algorithm
from repro.comm.collective import Collective


class Buckets(Algorithm):
    """Runs one algorithm per bucket; the update is the same to the bit whether or not they overlap backward."""

    def __init__(self, spans: list[slice], parts: Sequence[Algorithm]):
        self.spans, self.parts = spans, parts
        self.period, self.delay = parts[0].period, parts[0].delay
        self.messages_depend_on_values = parts[0].messages_depend_on_values
        self.cuts: list[int] = []  # rounds counted at the end of each bucket of the last step
        self.overlap: Overlap | None = None

    @property
    def density(self) -> float:
        return self.parts[0].density

    @density.setter
    def density(self, value: float) -> None:
        for part in self.parts:
            part.density = value

    def begin(self, parameters: Tensor) -> None:
        for span, part in zip(self.spans, self.parts, strict=True):
            part.begin(parameters[span])

    def skip_warmup(self) -> None:
        for part in self.parts:
            part.skip_warmup()

    def clear_residual(self) -> None:
        for part in self.parts:
            part.clear_residual()

    @property
    def selected(self) -> int | None:
        """Counts the entries that all parts selected; None if they select nothing."""
        counts = [part.selected for part in self.parts if part.selected is not None]
        return sum(counts) if counts else None

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
        for part, saved in zip(self.parts, state["buckets"], strict=True):
            part.load_state_dict(saved)


class Overlap:
    """Starts each bucket on a second thread once its layers' gradients are ready, in the same order on all ranks."""

    def __init__(
        self,
        buckets: Buckets,
        layers: Sequence[Tensor],
        gradient: Tensor,
        collective: Collective,
        check: Callable[[Tensor], None],
    ):
        """Takes as `layers` the parameters, whose `.grad` view `gradient`; `check` may raise on a full bucket."""
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
            # PyTorch's hooks are hidden from the garbage collection: one that held this would keep the whole worker
            layer.register_post_accumulate_grad_hook(functools.partial(_filled, weakref.ref(self), number))
        buckets.overlap = self

    def arm(self) -> None:
        """Prepares the backward pass that completes the gradient; earlier micro-batches do not call it."""
        self.missing, self.started, self.armed = list(self.counts), [], True
        self.buckets.cuts = []

    def finish(self) -> None:
        """Waits for all buckets; starts those of layers that got no gradient. Raises what their thread raised."""
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
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
        # Count what buckets did before this wait; a late wake-up after the last of them is not their work.
        self.collective.hidden_s += sum(max(0.0, min(end, began) - start) for start, end in times)

    def filled(self, number: int) -> None:
        """Starts the buckets that are complete, now that one more layer of this bucket has its gradient."""
        if not self.armed:
            return
        self.missing[number] -= 1
        while len(self.started) < len(self.counts) and self.missing[len(self.started)] == 0:
            self._start()

    def _start(self) -> None:
        stream = self.stream
        event = None if stream is None else torch.cuda.current_stream(stream.device).record_event()
        self.started.append(self.thread.submit(self._run, len(self.started), event))

    @torch.no_grad()
    def _run(self, number: int, event: torch.cuda.Event | None) -> tuple[float, float]:
        """Runs one bucket; returns when it began and ended (time.perf_counter)."""
        for earlier in self.started[:number]:  # all done; where one failed, others still expect its messages
            earlier.result()
        began = time.perf_counter()
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            if self.stream is not None and event is not None:
                self.stream.wait_event(event)
            self.check(self.gradient[self.buckets.spans[number]])
            self.buckets.one(number, self.gradient, self.collective)
        return began, time.perf_counter()


def _filled(overlap: weakref.ref[Overlap], number: int, layer: Tensor) -> None:
    if (found := overlap()) is not None:
        found.filled(number)
