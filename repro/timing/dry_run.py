"""Records the rounds of all ranks without a wire: an algorithm's own code runs, and receives zeros.

Usually one rank runs after the other, without threads or copies, so that thousands of ranks take seconds.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.algorithms import Algorithm
from repro.clock import clock
from repro.comm import bucket_spans
from repro.comm.bucket_spans import Shapes
from repro.comm.collective import Collective
from repro.comm.cost_formulas import message_bytes
from repro.comm.traffic import HEADERS_BYTES, Round, ring
from repro.comm.transport import MemoryTransport, Wires
from repro.config.parts import Algo
from repro.config.schema import Config, ConfigError
from repro.density import entries
from repro.timing.one_rank import Recorder

TINY = 1 << 16  # parameters of the stand-in gradient: more than the bytes of any message with its one entry
MOST_THREADS = 256  # ranks that can run at once, where messages depend on values
SURPLUS = 8  # stand-in parameters per selected entry, where messages depend on values


def check_whole(configs: Iterable[Config]) -> None:
    """Raises ConfigError where settings divide a step's messages, which are recorded of whole gradients here."""
    for config in configs:
        if config.stages > 1:
            raise ConfigError(
                f"stages={config.stages}: pipelines are predicted by `repro strategies`; type stages=1 here"
            )
        asked = [f"bucket_mb={config.bucket_mb:g}"] if config.bucket_mb is not None else []
        asked += ["overlap=on"] * (config.overlap == "on") + ["hierarchical=true"] * config.hierarchical
        asked += [f"machines={config.machines}"] if config.machines is not None else []
        if asked:
            raise ConfigError(
                f"{' '.join(asked)}: not simulated or measured here: whole gradients travel, between nodes alone. "
                "Leave that out; `repro tune` predicts buckets and overlap"
            )


class Echo:
    """Stands in for the peers of one rank: it receives zeros, and `seconds` is how long writing them took.

    Every message of the size of `message` is that instead.
    """

    segments, header = 0, HEADERS_BYTES

    def __init__(self, rank: int, size: int, message: Tensor | None = None):
        self.rank, self.size, self.message, self.seconds = rank, size, message, 0.0
        self.reduced: list[tuple[int, int]] = []  # elements and bytes per element of each all_reduce

    def send(self, x: Tensor, peer: int) -> None:
        pass

    def recv(self, into: Tensor, peer: int) -> None:
        start = clock()
        if self.message is not None and into.shape[-1:] == self.message.shape:
            into.copy_(self.message)
        else:
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


def all_rounds(
    algo: Algo,
    size: int,
    parameters: int,
    k: int,
    ranks: Iterable[int] | None = None,
    shapes: Sequence[Sequence[int]] | None = None,
) -> list[list[Round]]:
    """Returns the rounds of every rank (or of `ranks`) in one period of steps that select `k` of `parameters` entries.

    A period is one step, except for algorithms that do not communicate in every step: `algorithms.period`. A sparse
    algorithm runs on TINY parameters with one selected entry, and every message is then scaled to the real sizes:
    q * TINY + r bytes are q bytes a parameter and r bytes a selected entry; where r holds whole messages of pairs, each
    has the bytes of k pairs in its wire format. Other algorithms run on tensors that have the model's size and no
    content. Where a message holds a part of k, each rank selects all k of a stand-in. Where messages depend on
    values, all ranks run at once on random values, first a step and then the period. Raises ConfigError.
    """
    ranks = range(size) if ranks is None else ranks
    if algorithms.of(algo).messages_depend_on_values:
        rounds, _ = all_at_once(algo, size, parameters, k)
        return [rounds[rank] for rank in ranks]
    if not algo.sparse:
        return [_of_size(algo, rank, size, parameters, shapes) for rank in ranks]
    if algorithms.of(algo).splits_k:
        return [_selecting(algo, rank, size, parameters, k) for rank in ranks]
    if size * 8 > TINY:
        raise ConfigError(f"nodes={size}: rounds are recorded for at most {TINY // 8} nodes.")
    gradient = torch.randn(TINY, generator=torch.Generator().manual_seed(0))
    return [_rounds(algo, rank, size, gradient, parameters, k) for rank in ranks]


def in_parts(config: Config, nodes: int, shapes: Shapes, spans: Sequence[slice]) -> list[list[list[Round]]]:
    """Returns `all_rounds` on so many nodes for each of `spans`, the parts of a gradient of layers with `shapes`."""
    sizes = [span.stop - span.start for span in spans]
    layers = [bucket_spans.shapes_inside(shapes, span) for span in spans]
    return [
        all_rounds(config.algo, nodes, size, entries(config.density, size), shapes=held)
        for size, held in zip(sizes, layers, strict=True)
    ]


def in_turn(parts: Sequence[list[list[Round]]]) -> list[list[Round]]:
    """Returns the rounds of every rank for all parts, one part after the other."""
    return [[one for part in parts for one in part[rank]] for rank in range(len(parts[0]))]


def steady(
    algo: Algo, parameters: int, device: torch.device | str = "cpu", shapes: Sequence[Sequence[int]] | None = None
) -> Algorithm:
    """Returns the algorithm as it is in most steps of a run: its warm-up, if it has one, is over."""
    algorithm = algorithms.load(algo, parameters, device, shapes)
    algorithm.skip_warmup()
    return algorithm


def _of_size(algo: Algo, rank: int, size: int, parameters: int, shapes: Sequence[Sequence[int]] | None) -> list[Round]:
    collective = Collective(Echo(rank, size))
    algorithm = steady(algo, parameters, "meta", shapes)
    for _ in range(algorithm.period):
        algorithms.one_step(algorithm, torch.empty(parameters, device="meta"), collective)
    return collective.traffic.rounds


def _selecting(algo: Algo, rank: int, size: int, parameters: int, k: int) -> list[Round]:
    collective = Collective(Echo(rank, size))
    algorithm = few_parameters(algo, parameters, k)
    gradient = torch.randn(stand_in(parameters, k), generator=torch.Generator().manual_seed(0))
    for _ in range(algorithm.period):
        algorithms.one_step(algorithm, gradient.clone(), collective)
    return collective.traffic.rounds


def allows(algo: Algo, size: int) -> bool:
    """Returns whether so many ranks can be recorded: all have to be run where messages depend on values."""
    return size <= MOST_THREADS or not algorithms.of(algo).messages_depend_on_values


def check_ranks(algo: Algo, size: int) -> None:
    """Raises ConfigError where all ranks have to be run, and are too many."""
    if not allows(algo, size):
        raise ConfigError(
            f"nodes={size}: the messages of algo={algo.name} depend on values, so all its ranks are run; type "
            f"nodes={MOST_THREADS} or fewer, or leave {algo.name} out of algo="
        )


@dataclass(frozen=True)
class Lone:
    """Holds what rank 0 did among all ranks, so that it can do it again alone: `gradients` are those of a period."""

    algorithm: Algorithm
    state: dict[str, Any]
    gradients: list[Tensor]
    recorder: Recorder


def all_at_once(
    algo: Algo, size: int, parameters: int, k: int, device: torch.device | str = "cpu"
) -> tuple[list[list[Round]], Lone]:
    """Runs all ranks on random stand-ins, first a step and then the period: returns that one's rounds, and rank 0."""
    check_ranks(algo, size)
    wires, rounds, errors, lone = Wires(size), [list[Round]()] * size, list[BaseException](), list[Lone]()

    def run(rank: int) -> None:
        try:
            generator, transport = torch.Generator().manual_seed(rank), MemoryTransport(rank, wires)
            algorithm = few_parameters(algo, parameters, k, device=device)
            first, *own = (
                torch.randn(stand_in(parameters, k), generator=generator).to(device)
                for _ in range(1 + algorithm.period)
            )
            algorithms.one_step(algorithm, first, Collective(transport))
            # values no larger than at the first step, which set the thresholds; a run sets them again at times
            algorithm.clear_residual()
            recorder = Recorder(transport)
            if rank == 0:
                lone.append(Lone(algorithm, copy.deepcopy(algorithm.state_dict()), own, recorder))
            collective = Collective(transport if rank else recorder)
            for gradient in own:
                algorithms.one_step(algorithm, gradient.clone(), collective)
            rounds[rank] = collective.traffic.rounds
        except BaseException as error:
            errors.append(error)
            wires.closed.update(range(size))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return rounds, lone[0]


def stand_in(parameters: int, k: int, surplus: int = SURPLUS) -> int:
    return min(parameters, surplus * k)


def few_parameters(
    algo: Algo, parameters: int, k: int, surplus: int = SURPLUS, device: torch.device | str = "cpu"
) -> Algorithm:
    """Returns the algorithm for a shorter vector of which it selects k; its messages have room for all parameters."""
    fewer = stand_in(parameters, k, surplus)
    algorithm = steady(algo, fewer, device)
    algorithm.density = (k + 0.5) / fewer
    if algorithm.wire is not None:
        algorithm.wire.parameters = parameters
    return algorithm


def _rounds(algo: Algo, rank: int, size: int, gradient: Tensor, parameters: int, k: int) -> list[Round]:
    def real(amount: int) -> int:
        whole, rest = divmod(amount, TINY)
        messages, others = divmod(rest, of_one) if of_one else (0, rest)
        return whole * parameters + messages * of_k + others * k

    transport = Echo(rank, size)
    collective = Collective(transport)
    algorithm = steady(algo, TINY)
    algorithm.density = 1 / TINY
    of_one = message_bytes(algo.wire, 1, TINY) if algorithm.wire is not None else 0
    of_k = message_bytes(algo.wire, k, parameters)
    for _ in range(algorithm.period):
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
