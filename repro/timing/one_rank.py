"""Times compute and compress on one rank that has the machine to itself, and records the rounds of all ranks.

Local ranks crowd one machine, so their wall clock says nothing about a node. Before training, one real step of all
ranks is recorded; then rank 0 alone repeats its own part, and receives what it received then. The run's own state stays
untouched.
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

from repro.algorithms import Algorithm, one_step
from repro.clock import clock
from repro.comm.collective import Collective, Transport
from repro.comm.traffic import Round
from repro.iteration_time import IterationTime
from repro.train.buckets import Buckets

REPEATS = 5
PATIENCE_S = 3.0  # a slow model (ImageNet on a CPU) is repeated less often

T = TypeVar("T")


@dataclass
class Recorder:
    """Wraps a transport and keeps what the rank received."""

    inner: Transport
    received: list[Tensor] = field(default_factory=list)
    asides: list[Recorder] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rank, self.size = self.inner.rank, self.inner.size
        self.segments, self.header = self.inner.segments, self.inner.header

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
    """Replays to one rank alone what a `Recorder` kept; `seconds` is how long the copying took."""

    def __init__(self, recorder: Recorder):
        self.rank, self.size, self.replies = recorder.rank, recorder.size, iter(recorder.received)
        self.segments, self.header = recorder.segments, recorder.header
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
    """Holds the seconds of one rank's iteration without messages, and the messages that all ranks send in it."""

    compute_s: float
    compress_s: float
    rounds: list[list[Round]]  # one list per rank: the rounds of a period of steps
    period: int  # steps; the seconds above are means over them
    delay: int  # steps until messages sent in the background are waited for
    cuts: list[list[int]]  # with buckets: how many rounds each rank has done at the end of each bucket
    ready: list[float]  # seconds from the start of a step until the gradient of each layer is there

    def iteration(self, communicate_s: float, hidden_s: float | None = None) -> IterationTime:
        """Adds `communicate_s`; without `hidden_s`, background messages hide behind the steps that they may take."""
        if hidden_s is None:
            hidden_s = min(communicate_s, self.delay * (self.compute_s + self.compress_s) / self.period)
        return IterationTime(self.compute_s, self.compress_s, communicate_s, hidden_s)

    def overlapped(self, communicate_s: float, exposed_s: float) -> IterationTime:
        """Adds `communicate_s`, of which the last rank waits for `exposed_s` when its backward has ended.

        Where ranks end at unlike times, their mean may be less than what the last one waits for: it takes that long.
        """
        communicate_s = max(communicate_s, exposed_s)
        return self.iteration(communicate_s, communicate_s - exposed_s)


def calibrate(
    gradient: Tensor,
    compute: Callable[[], object],
    layers: Sequence[Tensor],
    algorithm: Algorithm,
    transport: Transport,
    control: Collective,
) -> Calibration | None:
    """Returns the calibration on rank 0, and None on other ranks. Collective.

    `gradient` is the input of the recorded step; `compute` does one forward, backward and optimizer step on `layers`.
    They and `algorithm` are copies made for this purpose."""
    scratch = torch.empty_like(gradient)  # an algorithm may write into what it is given
    recorder = Recorder(transport)
    recorded = Collective(recorder, of=control)  # whose position the watchdog looks at
    unrecorded = Collective(transport, of=control)
    for _ in range(algorithm.period):  # the first may be unlike the others
        one_step(algorithm, scratch.copy_(gradient), unrecorded)
    algorithm.skip_warmup()
    if algorithm.messages_depend_on_values:
        algorithm.clear_residual()
    before = copy.deepcopy(algorithm.state_dict())
    for _ in range(algorithm.period):
        one_step(algorithm, scratch.copy_(gradient), recorded)
    seen = control.gather_objects((recorded.traffic.rounds, algorithm.cuts if isinstance(algorithm, Buckets) else []))
    control.barrier()  # from here on the other ranks sleep in the next barrier
    result = None
    if control.rank == 0:
        gradient = gradient.clone()  # `compute` may write over it
        timed = repeated(lambda: moments(compute, layers))
        *ready, compute_s = map(statistics.median, zip(*timed, strict=True))
        fresh = functools.partial(scratch.copy_, gradient)
        compress_s = statistics.median(repeated(lambda: _compress_seconds(algorithm, before, fresh, recorder)))
        rounds, cuts = ([own[part] for own in seen] for part in (0, 1))
        result = Calibration(compute_s, compress_s, rounds, algorithm.period, algorithm.delay, cuts, ready)
    control.barrier()
    return result


def moments(compute: Callable[[], object], layers: Sequence[Tensor]) -> list[float]:
    """Returns seconds from the start of `compute` until each of `layers` has its whole gradient, and until it ends.

    On a GPU they are its own: to wait for it at each layer would keep it from working ahead, and lengthen all.
    """
    on_gpu = any(layer.is_cuda for layer in layers)
    seen: list[Any] = [None] * len(layers)

    def mark() -> Any:
        if not on_gpu:
            return clock()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def note(number: int, layer: Tensor) -> None:
        seen[number] = mark()

    def since(moment: Any) -> float:
        if moment is None:  # it has no gradient
            return 0.0
        return float(first.elapsed_time(moment) / 1000 if on_gpu else moment - first)

    hooks = [
        layer.register_post_accumulate_grad_hook(functools.partial(note, number)) for number, layer in enumerate(layers)
    ]
    start = clock()
    first = mark()
    compute()
    end = clock() - start
    for hook in hooks:
        hook.remove()
    return [*map(since, seen), end]


def _compress_seconds(
    algorithm: Algorithm, state: dict[str, Any], fresh: Callable[[], Tensor], recorder: Recorder
) -> float:
    algorithm.load_state_dict(state)  # so that it does the same steps again, with the same messages
    player, total = Player(recorder), 0.0
    collective = Collective(player)
    for _ in range(algorithm.period):
        gradient = fresh()
        total += _seconds(functools.partial(one_step, algorithm, gradient, collective))
    return (total - player.seconds) / algorithm.period


def _seconds(action: Callable[[], object]) -> float:
    start = clock()
    action()
    return clock() - start


def repeated(measure: Callable[[], T]) -> list[T]:
    """Calls `measure` REPEATS times, or until PATIENCE_S have passed; returns all results."""
    start, results = time.perf_counter(), [measure()]
    while len(results) < REPEATS and time.perf_counter() - start < PATIENCE_S:
        results.append(measure())
    return results
