"""Makes gTop-k's tree as slow as the authors' code does, one cause at a time: `cluster.authors`.

Their code sends index and value as two float64, 16 bytes a pair; puts a barrier after each round in which vectors are
merged; and merges with NumPy between two messages, inside of what it times as communication (results/paper.yaml).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from repro.comm.collective import distances
from repro.comm.traffic import Round
from repro.density import entries
from repro.timing import wire_replay
from repro.timing.one_rank import clock, repeated

if TYPE_CHECKING:
    from repro.cluster.ranks import Rank
    from repro.config.schema import Config

EMPTY = 1  # bytes of a barrier's message


class Work(NamedTuple):
    """Seconds on the processor that count as communication: after each message that is merged, and after the last."""

    merge_s: float = 0.0
    finish_s: float = 0.0

    def inside(self, size: int) -> float:
        """Returns the seconds that rank 0 of `size` works, for which the others wait."""
        return len(list(distances(size))) * self.merge_s + self.finish_s


def changed(config: Config, all_rounds: list[list[Round]]) -> list[list[Round]]:
    """Returns the rounds of every rank's tree as `cluster.authors` says."""
    what = config.cluster.authors
    if what in ("pairs", "all"):
        all_rounds = [[done._replace(sent=2 * done.sent, received=2 * done.received) for done in own]
                      for own in all_rounds]  # fmt: skip
    if what in ("barriers", "all"):
        all_rounds = [with_barriers(rank, own, len(all_rounds)) for rank, own in enumerate(all_rounds)]
    return all_rounds


def with_barriers(rank: int, rounds: Sequence[Round], size: int) -> list[Round]:
    """Returns a rank's rounds with a barrier of all ranks, ceil(log2 P) rounds, after each round of merges."""
    own, found = list(rounds), list[Round]()
    barrier = [Round((rank + step) % size, EMPTY, (rank - step) % size, EMPTY) for step in distances(size)]
    for distance in distances(size):
        if takes_part(rank, distance, size):
            found.append(own.pop(0))
        found += barrier
    return found + own


def takes_part(rank: int, distance: int, size: int) -> bool:
    """Returns whether the rank sends or receives in the tree's round of this distance."""
    return rank % (2 * distance) == distance or (rank % (2 * distance) == 0 and rank + distance < size)


def work(config: Config, parameters: int) -> Work:
    """Times on one core here what the authors' code does between messages, if `cluster.authors` asks for it."""
    if config.cluster.authors not in ("merges", "all"):
        return Work()
    k, generator = entries(config.density, parameters), np.random.default_rng(0)
    one, other = (np.sort(generator.choice(parameters, k, replace=False)).astype(np.uint32) for _ in range(2))
    values = [generator.standard_normal(k).astype(np.float32) for _ in range(2)]
    dense = np.zeros(parameters, np.float32)

    def merge() -> None:
        received = np.concatenate([other, values[1]])  # float64, as they send it
        their_index, theirs = received[:k].astype(int), received[k:].astype(np.float32)
        _, here, there = np.intersect1d(one, their_index, return_indices=True)
        mine = values[0].copy()
        mine[here] += theirs[there]
        theirs[there] = 0.0
        both = np.concatenate([mine, theirs])
        kept = np.argpartition(np.abs(both), -k)[-k:]
        np.concatenate([np.concatenate([one, their_index])[kept], both[kept]])

    def finish() -> None:
        np.intersect1d(one, other, return_indices=True)
        dense.fill(0.0)
        dense[other] = values[1]

    return Work(*(_seconds(part) for part in (merge, finish)))


def _seconds(part: Callable[[], None]) -> float:
    def once() -> float:
        start = clock()
        part()
        return clock() - start

    once()  # warms up
    return statistics.median(repeated(once))


def play(rounds: Sequence[Round], rank: Rank, done: Work) -> Callable[[], None]:
    """Returns a call that sends the rounds, and sleeps as long as the rank would work after each one that it merges."""
    transport = rank.collective.transport
    if not any(done):
        return wire_replay.play(rounds, transport)
    merged = sum(rank.number % (2 * d) == 0 and rank.number + d < rank.size for d in distances(rank.size))
    plays = [wire_replay.play([one], transport) for one in rounds]
    receives = [number for number, one in enumerate(rounds) if one.to is None][:merged]

    def once() -> None:
        for number, one in enumerate(plays):
            one()
            if number in receives:
                pause(rank, done.merge_s)
        pause(rank, done.finish_s)

    return once


def pause(rank: Rank, seconds: float) -> None:
    """Lets a rank sleep for as long as it would work, slowed like all else."""
    rank.sleep_until(rank.now() + rank.dilation * seconds)
