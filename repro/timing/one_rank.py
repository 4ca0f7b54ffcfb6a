"""Compute and compress seconds of one rank that has the machine to itself, and the rounds its ranks exchange.

Local ranks crowd one machine, so their wall clock says nothing about a node. Before training, one real step with all
ranks is recorded; then rank 0 alone repeats its own part of it, fed with what it received. Nothing of the run's own
state is touched.
"""

from __future__ import annotations

import copy
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from repro.algorithms import Algorithm, one_step, period, skip_warmup
from repro.collective import Collective, Transport
from repro.network import Round

REPEATS = 5
PATIENCE_S = 3.0  # a slow network (ImageNet on a CPU) is repeated less often

T = TypeVar("T")


@dataclass
class Recorder:
    """A transport that keeps what the rank received."""

    inner: Transport
    received: list[Tensor] = field(default_factory=list)
    asides: list[Recorder] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rank, self.size = self.inner.rank, self.inner.size

    def send(self, x: Tensor, peer: int) -> None:
        self.inner.send(x, peer)

    def recv(self, into: Tensor, peer: int) -> None:
        self.inner.recv(into, peer)
        self.received.append(into.clone())

    def exchange(self, x: Tensor, to: int, into: Tensor, source: int) -> None:
        self.inner.exchange(x, to, into, source)
        self.received.append(into.clone())

    def all_reduce(self, x: Tensor) -> None:
        self.inner.all_reduce(x)
        self.received.append(x.clone())

    def aside(self) -> Recorder:
        self.asides.append(Recorder(self.inner.aside()))
        return self.asides[-1]

    def close(self) -> None:
        self.inner.close()


class Player:
    """A transport for one rank alone: it hears again what a `Recorder` kept. `seconds` is what that took."""

    def __init__(self, recorder: Recorder):
        self.rank, self.size, self.replies = recorder.rank, recorder.size, iter(recorder.received)
        self.asides = iter(recorder.asides)
        self.seconds = 0.0

    def send(self, x: Tensor, peer: int) -> None:
        pass

    def recv(self, into: Tensor, peer: int) -> None:
        start = clock()
        into.copy_(next(self.replies))
        self.seconds += clock() - start

    def exchange(self, x: Tensor, to: int, into: Tensor, source: int) -> None:
        self.recv(into, source)

    def all_reduce(self, x: Tensor) -> None:
        self.recv(x, 0)

    def aside(self) -> Player:
        return Player(next(self.asides))

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Calibration:
    compute_s: float
    compress_s: float
    schedule: list[list[Round]]  # one list a rank: what a period of steps puts on the wire
    period: int  # steps; the seconds above are means over them
    delay: int  # steps that messages sent in the background have until they are waited for
    cuts: list[list[int]]  # of an algorithm with buckets: how many rounds each rank has done at the end of each
    ready: list[float]  # seconds from the start of a step until the gradient of each layer is there


def calibrate(
    gradient: Tensor,
    compute: Callable[[], object],
    layers: Sequence[Tensor],
    algorithm: Algorithm,
    transport: Transport,
    control: Collective,
) -> Calibration | None:
    """Collective: all ranks call it; rank 0 gets the result, the others None.

    `gradient` is what the recorded step works on; `compute` does one forward, backward and optimizer step
    on `layers`. They and `algorithm` are copies made for this purpose.
    """
    scratch = torch.empty_like(gradient)  # an algorithm may write into what it is given
    recorder = Recorder(transport)
    recorded = Collective(recorder)
    unrecorded = Collective(transport)
    for _ in range(period(algorithm)):  # the first may be unlike the others
        one_step(algorithm, scratch.copy_(gradient), unrecorded)
    skip_warmup(algorithm)
    before = copy.deepcopy(algorithm.state_dict())
    for _ in range(period(algorithm)):
        one_step(algorithm, scratch.copy_(gradient), recorded)
    seen = control.gather_objects((recorded.traffic.rounds, getattr(algorithm, "cuts", [])))
    control.barrier()  # from here on the other ranks sleep in the next barrier
    result = None
    if control.rank == 0:
        gradient = gradient.clone()  # `compute` may write over it
        timed = repeated(lambda: moments(compute, layers))
        *ready, compute_s = map(statistics.median, zip(*timed, strict=True))
        fresh = functools.partial(scratch.copy_, gradient)
        compress_s = statistics.median(repeated(lambda: _compress_seconds(algorithm, before, fresh, recorder)))
        schedule, cuts = ([own[part] for own in seen] for part in (0, 1))
        delay = getattr(algorithm, "delay", 0)
        result = Calibration(compute_s, compress_s, schedule, period(algorithm), delay, cuts, ready)
    control.barrier()
    return result


def moments(compute: Callable[[], object], layers: Sequence[Tensor]) -> list[float]:
    """Seconds from the start of `compute` until the gradient of each of `layers` is complete, and until it ends."""
    seen = [0.0] * len(layers)

    def note(number: int, layer: Tensor) -> None:
        seen[number] = clock() - start

    hooks = [
        layer.register_post_accumulate_grad_hook(functools.partial(note, number)) for number, layer in enumerate(layers)
    ]
    start = clock()
    compute()
    end = clock() - start
    for hook in hooks:
        hook.remove()
    return [*seen, end]


def _compress_seconds(
    algorithm: Algorithm, state: dict[str, Any], fresh: Callable[[], Tensor], recorder: Recorder
) -> float:
    algorithm.load_state_dict(state)  # so that it does the same steps again, with the same messages
    player, taken = Player(recorder), 0.0
    collective = Collective(player)
    for _ in range(period(algorithm)):
        gradient = fresh()
        taken += _seconds(functools.partial(one_step, algorithm, gradient, collective))
    return (taken - player.seconds) / period(algorithm)


def _seconds(action: Callable[[], object]) -> float:
    start = clock()
    action()
    return clock() - start


def clock() -> float:
    """Seconds. With one thread on a CPU, those in which it ran: whatever else the machine does is left out."""
    if torch.get_num_threads() == 1 and not torch.cuda.is_available():
        return time.thread_time()
    synchronize()
    return time.perf_counter()


def repeated(measure: Callable[[], T]) -> list[T]:
    """What it returned each time."""
    start, taken = time.perf_counter(), [measure()]
    while len(taken) < REPEATS and time.perf_counter() - start < PATIENCE_S:
        taken.append(measure())
    return taken


def synchronize() -> None:
    """Wait for the GPU, so that a clock read next is true."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
