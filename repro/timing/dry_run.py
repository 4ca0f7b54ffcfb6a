"""An algorithm's message schedule without a network, and the same messages once more on a real wire.

`schedule` runs the algorithm's own code, as a rule one rank after the other, and answers it with zeros: no
threads, no copies, so thousands of ranks take seconds. `play` sends messages of recorded sizes without the
algorithm between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.algorithms import Algorithm
from repro.calibrate import clock
from repro.collective import Collective, Transport
from repro.network import Round, Traffic, ring
from repro.schema import Algo, ConfigError
from repro.transport import MemoryTransport, Wires

TINY = 1 << 16  # parameters of the stand-in gradient: more than any message of its one entry has bytes
MOST_THREADS = 256  # ranks that can be run at once, where messages depend on values
SURPLUS = 8  # stand-in parameters per selected entry there
PAUSE_S = 0.03  # before a common start: all ranks sleep, all token buckets are full


class Echo:
    """A transport for one rank without peers: whatever it asks for comes as zeros; `seconds` is what those took."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size, self.seconds = rank, size, 0.0
        self.reduced: list[tuple[int, int]] = []  # elements and bytes per element of each all_reduce

    def send(self, x: Tensor, peer: int) -> None:
        pass

    def recv(self, into: Tensor, peer: int) -> None:
        start = clock()
        into.zero_()
        self.seconds += clock() - start

    def exchange(self, x: Tensor, to: int, into: Tensor, source: int) -> None:
        self.recv(into, source)

    def all_reduce(self, x: Tensor) -> None:
        self.reduced.append((x.numel(), x.element_size()))

    def aside(self) -> Echo:
        return self

    def close(self) -> None:
        pass


def schedule(
    algo: Algo,
    size: int,
    parameters: int,
    k: int,
    ranks: Iterable[int] | None = None,
    shapes: Sequence[Sequence[int]] | None = None,
) -> list[list[Round]]:
    """The rounds of every rank (or of `ranks`) in one period of steps that select `k` of `parameters` entries.

    A period is one step, except for algorithms that do not communicate in every one: `algorithms.period`.
    A sparse algorithm's are done on TINY parameters with one selected entry, and every message is then sized for
    the real ones: q * TINY + r bytes are q bytes a parameter and r bytes a selected entry. Those of any other are
    done on tensors that have the model's size and no content. Where messages depend on values, all ranks do a step
    and then the period together on random ones. Raises ConfigError.
    """
    if algorithms.messages_depend_on_values(algorithms.load(algo, 1)):
        rounds = _together(algo, size, parameters, k)
        return [rounds[rank] for rank in ranks or range(size)]
    if not algo.sparse:
        return [_of_size(algo, rank, size, parameters, shapes) for rank in ranks or range(size)]
    if size * 8 > TINY:
        raise ConfigError(f"nodes={size}: schedules are recorded for at most {TINY // 8} nodes.")
    gradient = torch.randn(TINY, generator=torch.Generator().manual_seed(0))
    return [_rounds(algo, rank, size, gradient, parameters, k) for rank in ranks or range(size)]


def steady(
    algo: Algo, parameters: int, device: str = "cpu", shapes: Sequence[Sequence[int]] | None = None
) -> Algorithm:
    """The algorithm as it is in most steps of a run: one that has a warm-up is beyond it."""
    algorithm = algorithms.load(algo, parameters, device, shapes)
    algorithms.skip_warmup(algorithm)
    return algorithm


def _of_size(algo: Algo, rank: int, size: int, parameters: int, shapes: Sequence[Sequence[int]] | None) -> list[Round]:
    collective = Collective(Echo(rank, size))
    algorithm = steady(algo, parameters, "meta", shapes)
    for _ in range(algorithms.period(algorithm)):
        algorithms.one_step(algorithm, torch.empty(parameters, device="meta"), collective)
    return collective.traffic.rounds


def _together(algo: Algo, size: int, parameters: int, k: int) -> list[list[Round]]:
    if size > MOST_THREADS:
        raise ConfigError(
            f"nodes={size}: the messages of algo={algo.name} depend on values, so all its ranks are run; "
            f"at most {MOST_THREADS}."
        )
    parameters = min(parameters, SURPLUS * k)
    wires, found, errors = Wires(size), [list[Round]()] * size, list[BaseException]()

    def run(rank: int) -> None:
        try:
            generator, collective = torch.Generator().manual_seed(rank), Collective(MemoryTransport(rank, wires))
            algorithm = steady(algo, parameters)
            algorithm.density = (k + 0.5) / parameters
            for step in range(1 + algorithms.period(algorithm)):
                if step == 1:
                    collective.traffic = Traffic()
                    # no larger than at the first step, for which thresholds were set, as in a run they are now and then
                    algorithm.load_state_dict(emptied(algorithm.state_dict()))
                algorithms.one_step(algorithm, torch.randn(parameters, generator=generator), collective)
            found[rank] = collective.traffic.rounds
        except BaseException as error:
            errors.append(error)
            wires.closed.set()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def emptied(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "residual": torch.zeros_like(state["residual"])}


def _rounds(algo: Algo, rank: int, size: int, gradient: Tensor, parameters: int, k: int) -> list[Round]:
    def real(amount: int) -> int:
        whole, rest = divmod(amount, TINY)
        return whole * parameters + rest * k

    transport = Echo(rank, size)
    collective = Collective(transport)
    algorithm = steady(algo, TINY)
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
