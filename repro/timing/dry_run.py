"""Records the rounds of all ranks without a wire: an algorithm's own code runs, and receives zeros.

Usually one rank runs after the other, without threads or copies, so that thousands of ranks take seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from repro import algorithms
from repro.clock import clock
from repro.comm import bucket_spans
from repro.comm.bucket_spans import Shapes
from repro.comm.collective import Collective
from repro.comm.cost_formulas import message_bytes
from repro.comm.traffic import HEADERS_BYTES, Round, ring
from repro.config.parts import Algo
from repro.config.schema import Config, ConfigError
from repro.density import entries
from repro.timing.stand_ins import all_at_once, few_parameters, stand_in, steady

TINY = 1 << 16  # parameters of the stand-in gradient: more than the bytes of any message with its one entry


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
    # the messages of half the nodes travel as one, which is still less than a gradient
    most = min(TINY // 8, (2 * TINY - 1) // message_bytes(algo.wire, 1, TINY))
    if size > most:
        raise ConfigError(f"nodes={size}: rounds are recorded for at most {most} nodes.")
    gradient = torch.randn(TINY, generator=torch.Generator().manual_seed(0))
    _check_linear(algo, size, gradient)
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


def _check_linear(algo: Algo, size: int, gradient: Tensor) -> None:
    """Raises ConfigError where rank 0's messages of three entries are not those of one, three times as long."""
    plain = dataclasses.replace(algo, wire="pairs")  # in other formats lengths depend on which entries they are
    expected, (own, _) = _rounds(plain, 0, size, gradient, TINY, 3), _recorded(plain, 0, size, gradient, 3)
    if [(one.to, one.sent, one.source, one.received) for one in expected] != [
        (one.to, one.sent, one.source, one.received) for one in own.traffic.rounds
    ]:
        raise ConfigError(
            f"algo={algo.name}: its messages of 3 entries are not those of one, three times as long, so that they "
            f"cannot be told for any k. Say splits_k = True in repro/algorithms/{algo.module}.py: then all k are "
            "selected"
        )


def _recorded(algo: Algo, rank: int, size: int, gradient: Tensor, entries: int) -> tuple[Collective, Echo]:
    """Runs a period of steps on a stand-in of TINY parameters that select so many entries."""
    transport = Echo(rank, size)
    collective = Collective(transport)
    algorithm = steady(algo, TINY)
    algorithm.density = entries / TINY
    for _ in range(algorithm.period):
        algorithms.one_step(algorithm, gradient.clone(), collective)
    return collective, transport


def _rounds(algo: Algo, rank: int, size: int, gradient: Tensor, parameters: int, k: int) -> list[Round]:
    def real(amount: int) -> int:
        whole, rest = divmod(amount, TINY)
        messages, others = divmod(rest, of_one) if of_one else (0, rest)
        return whole * parameters + messages * of_k + others * k

    of_one = message_bytes(algo.wire, 1, TINY) if algorithms.of(algo).sends_pairs else 0
    of_k = message_bytes(algo.wire, k, parameters)
    collective, transport = _recorded(algo, rank, size, gradient, 1)
    reduced = iter(transport.reduced)
    rounds = []
    for done in collective.traffic.rounds:
        if done.repeat > 1:
            elements, itemsize = next(reduced)
            rounds.append(ring(rank, size, real(elements), itemsize))
        else:
            rounds.append(Round(done.to, real(done.sent), done.source, real(done.received)))
    return rounds
