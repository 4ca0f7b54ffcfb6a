"""An algorithm's message schedule without its peers, and the same messages once more on a real wire.

`schedule` runs the algorithm's own code, one rank after the other, and answers it with zeros: no threads,
no copies, so thousands of ranks take seconds. `play` sends messages of recorded sizes without the algorithm
between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from repro import algorithms
from repro.collective import Collective, Transport
from repro.network import Round, ring
from repro.schema import Algo, ConfigError

TINY = 1 << 16  # parameters of the stand-in gradient: more than any message of its one entry has bytes
PAUSE_S = 0.03  # before a common start: all ranks sleep, all token buckets are full


class Echo:
    """A transport for one rank without peers: whatever it asks for comes at once, as zeros."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self.reduced: list[tuple[int, int]] = []  # elements and bytes per element of each all_reduce

    def send(self, x: Tensor, peer: int) -> None:
        pass

    def recv(self, into: Tensor, peer: int) -> None:
        into.zero_()

    def exchange(self, x: Tensor, to: int, into: Tensor, source: int) -> None:
        into.zero_()

    def all_reduce(self, x: Tensor) -> None:
        self.reduced.append((x.numel(), x.element_size()))

    def aside(self) -> Echo:
        return self

    def close(self) -> None:
        pass


def schedule(
    algo: Algo, size: int, parameters: int, k: int, ranks: Iterable[int] | None = None
) -> list[list[Round]]:
    """The rounds of every rank (or of `ranks`) in one period of steps that select `k` of `parameters` entries.

    A period is one step, except for algorithms that do not communicate in every one: `algorithms.period`.
    It is done on TINY parameters with one selected entry, and every message is then sized for the real
    ones: q * TINY + r bytes are q bytes a parameter and r bytes a selected entry. An algorithm whose messages
    depend on values, or grow with neither, cannot be told from so small a run. Raises ConfigError.
    """
    if size * 8 > TINY:
        raise ConfigError(f"nodes={size}: schedules are recorded for at most {TINY // 8} nodes.")
    gradient = torch.randn(TINY, generator=torch.Generator().manual_seed(0))
    return [_rounds(algo, rank, size, gradient, parameters, k) for rank in ranks or range(size)]


def _rounds(algo: Algo, rank: int, size: int, gradient: Tensor, parameters: int, k: int) -> list[Round]:
    def real(amount: int) -> int:
        whole, rest = divmod(amount, TINY)
        return whole * parameters + rest * k

    transport = Echo(rank, size)
    collective = Collective(transport)
    algorithm = algorithms.load(algo, TINY)
    algorithm.density = 1 / TINY
    for _ in range(algorithms.period(algorithm)):
        algorithms.one_step(algorithm, gradient.clone(), collective)
    reduced = iter(transport.reduced)
    rounds = []
    for done in collective.traffic.rounds:
        if done.repeat > 1:
            elements, itemsize = next(reduced)
            rounds.append(ring(rank, size, real(elements), itemsize))
        else:
            rounds.append(Round(done.to, real(done.sent), done.source, real(done.received)))
    return rounds


def play(rounds: Sequence[Round], transport: Transport) -> Callable[[], None]:
    """What sends the messages of `rounds` again over `transport`; all ranks call it at once."""
    size = transport.size
    single = [done for done in rounds if done.repeat == 1]
    outgoing = torch.zeros(max((done.sent for done in single), default=0), dtype=torch.uint8)
    incoming = torch.zeros(max((done.received for done in single), default=0), dtype=torch.uint8)
    summed = torch.zeros(max((done.sent * size // 4 for done in rounds if done.repeat > 1), default=0))

    def once() -> None:
        for done in rounds:
            if done.repeat > 1:
                transport.all_reduce(summed[: done.sent * size // 4])
            elif done.to is None and done.source is not None:
                transport.recv(incoming[: done.received], done.source)
            elif done.source is None and done.to is not None:
                transport.send(outgoing[: done.sent], done.to)
            elif done.to is not None and done.source is not None:
                transport.exchange(outgoing[: done.sent], done.to, incoming[: done.received], done.source)

    return once


def time_together(action: Callable[[], object], control: Collective, repeats: int) -> list[float]:
    """Seconds of `action` from a common start to the last rank, `repeats` times; every rank gets them all.

    Collective. The ranks must share one clock: they are processes of one machine.
    """
    taken = []
    for _ in range(repeats):
        start = max(control.gather_objects(time.monotonic())) + PAUSE_S
        time.sleep(max(0.0, start - time.monotonic()))
        action()
        taken.append(time.monotonic() - start)
    return [max(ranks) for ranks in zip(*control.gather_objects(taken), strict=True)]
