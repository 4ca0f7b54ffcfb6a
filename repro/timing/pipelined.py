"""Predicts what 1F1B takes: each stage's work and messages in their order, on links that carry one message at a time.

With S equal stages and nothing to send this is (M + S - 1) times one micro-batch's work on a stage (PipeDream).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from repro import algorithms
from repro.comm import replay
from repro.comm.bucket_spans import Shapes
from repro.comm.traffic import Link, Round, bytes_sent
from repro.config.schema import Config
from repro.iteration_time import IterationTime
from repro.timing import dry_run, node_profile
from repro.train.split import Block, Split

Program = list[float | Round]  # seconds of work, and messages with other stages, in order
KEPT = 4  # vectors of a stage's parameters: themselves, gradient, momentum, residual or what is received


@dataclass(frozen=True)
class Pipelined:
    """Holds an iteration of pipelines: what each stage does, and how its gradient is aggregated over its nodes."""

    programs: list[Program]  # by stage
    rounds: list[list[list[Round]]]  # by stage, those of each of its nodes
    compress_s: list[float]  # by stage
    period: int = 1  # iterations in which these rounds are sent
    delay: int = 0  # iterations that they may take in the background

    def parts(self, link: Link) -> IterationTime:
        """Returns the iteration until its last stage is done. Communicate has all that is no work of that stage."""
        found = []
        for at, end in enumerate(finish(self.programs, link)):
            busy, sent_s = end + self.compress_s[at], replay.seconds(self.rounds[at], *link)
            total = busy + max(0.0, sent_s - self.delay * busy) / self.period
            compute_s = worked(self.programs[at])
            found.append(IterationTime(compute_s, self.compress_s[at], total - compute_s - self.compress_s[at]))
        return max(found, key=lambda one: one.total)

    def bytes_most(self) -> float:
        """Returns what the busiest node sends in an iteration."""
        return max(
            sent(program) + each(max(map(sent, rounds)), self.period)
            for program, rounds in zip(self.programs, self.rounds, strict=True)
        )


def each(total: int, period: int) -> float:
    """Returns the mean over a period of iterations, as a whole number where it is one: a summary rounds others."""
    return total / period if total % period else total // period


def iteration(config: Config, split: Split, compress_s: float) -> Pipelined:
    """Predicts from the seconds of the network's blocks on one micro-batch, and of compressing its whole gradient."""
    parts, copies, layers = split.parts(split.blocks), config.nodes // config.stages, iter(node_profile.layers(config))
    sizes = [sum(block.parameters for block in part) for part in parts]
    rounds: list[list[list[Round]]] = [
        _aggregated(config, copies, _first(layers, size)) if copies > 1 else [[]] for size in sizes
    ]
    return Pipelined(
        programs(parts, config.micro_batches), rounds,
        [compress_s * size / sum(sizes) if copies > 1 else 0.0 for size in sizes],
        algorithms.period(config.algo), algorithms.delay(config.algo),
    )  # fmt: skip


def _first(layers: Iterator[Sequence[int]], parameters: int) -> Shapes:
    """Takes the layers with the next so many parameters."""
    shapes: list[Sequence[int]] = []
    while sum(map(math.prod, shapes)) < parameters:
        shapes.append(next(layers))
    return shapes


def _aggregated(config: Config, copies: int, shapes: Shapes) -> list[list[Round]]:
    return dry_run.in_turn(dry_run.in_parts(config, copies, shapes, algorithms.spans(config, shapes)))


def programs(parts: Sequence[Sequence[Block]], micro_batches: int) -> list[Program]:
    """Returns what each stage does in an iteration."""
    edges = [0, *(part[-1].nbytes for part in parts[:-1]), 0]
    return [
        program(
            stage, len(parts), micro_batches, sum(block.forward_s for block in part),
            sum(block.backward_s for block in part), edges[stage], edges[stage + 1],
        )
        for stage, part in enumerate(parts)
    ]  # fmt: skip


def program(
    stage: int, stages: int, micro_batches: int, forward_s: float, backward_s: float, before: int, behind: int
) -> Program:
    """Returns what one stage does: `before` and `behind` are the bytes of a micro-batch at its two ends.

    A send and a receive between the same two stages are one round, as in torch's 1F1B.
    """
    last, warm = stages - 1, min(micro_batches, stages - stage)

    def left(out: bool, into: bool) -> Program:
        return [_round(stage - 1, before * out, before * into)] if stage > 0 else []

    def right(out: bool, into: bool) -> Program:
        return [_round(stage + 1, behind * out, behind * into)] if stage < last else []

    done: Program = []
    for number in range(warm):
        done += [*left(False, True), forward_s, *(right(True, False) if number < warm - 1 else [])]
    for _ in range(micro_batches - warm):
        done += [*right(True, True), backward_s, *left(True, True), forward_s]
    done += [*right(True, True), backward_s, *left(True, False)]
    for _ in range(warm - 1):
        done += [*right(False, True), backward_s, *left(True, False)]
    return done


def _round(peer: int, out: int, into: int) -> Round:
    return Round(peer if out else None, out, peer if into else None, into)


def finish(programs: Sequence[Program], link: Link) -> list[float]:
    """Returns when each stage is done. A message starts when both its ends are there, as over gloo. Sockets that
    buffer let it start before, which saves up to half of the waiting where stages are uneven. Raises ValueError where
    stages wait for each other.
    """
    at, time = [0] * len(programs), [0.0] * len(programs)
    moved = True
    while moved:
        moved = False
        for stage, own in enumerate(programs):
            while at[stage] < len(own):
                step = own[at[stage]]
                if isinstance(step, Round):
                    peer = step.source if step.to is None else step.to
                    assert peer is not None  # noqa: S101  (for the type checker: a round has a peer)
                    other = programs[peer][at[peer]] if at[peer] < len(programs[peer]) else None
                    if not isinstance(other, Round) or stage not in (other.to, other.source):
                        break
                    end = max(time[stage], time[peer]) + link.seconds(max(step.sent, step.received))
                    time[peer], at[peer] = end, at[peer] + 1
                else:
                    end = time[stage] + step
                time[stage], at[stage], moved = end, at[stage] + 1, True
    if any(place < len(own) for place, own in zip(at, programs, strict=True)):
        raise ValueError("the stages wait for each other")
    return time


def worked(program: Program) -> float:
    return sum(step for step in program if not isinstance(step, Round))


def sent(rounds: Sequence[float | Round]) -> int:
    return bytes_sent(step for step in rounds if isinstance(step, Round))


def memory(parts: Sequence[Sequence[Block]], micro_batches: int) -> int:
    """Returns the bytes that the fullest stage holds: its vectors, and the activations of micro-batches under way."""
    return max(
        4 * KEPT * sum(block.parameters for block in part)
        + min(micro_batches, len(parts) - stage) * sum(block.kept for block in part)
        for stage, part in enumerate(parts)
    )
