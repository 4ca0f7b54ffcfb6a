"""Cost model: seconds that counted traffic takes on alpha-beta links, and the paper's closed forms beside it.

A message of n bytes takes alpha + beta * n seconds; a node sends and receives at once (full duplex). The
closed forms are those of the gTop-k paper (`cost_formulas` among the paper's numbers). `seconds` replays what
a `Collective` recorded, so it also answers for any P, uneven rounds and a slow link; both agree to rounding
wherever a closed form exists.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

PAIR_BYTES = 8  # one sparse entry on the wire: int32 index + float32 value


class Round(NamedTuple):
    """What one rank did in one round: `sent` bytes to rank `to` while `received` came from rank `source`.

    `repeat` stands for that many equal rounds in a row; the partners of a repeated round repeat it as often.
    """

    to: int | None
    sent: int
    source: int | None
    received: int
    repeat: int = 1


class Link(NamedTuple):
    """One direction between two nodes."""

    alpha_s: float
    beta_s_per_byte: float

    def seconds(self, size: int) -> float:
        return self.alpha_s + self.beta_s_per_byte * size


@dataclass
class Traffic:
    """What one rank sent and received, and in which rounds."""

    messages: int = 0  # sent by this rank
    bytes_sent: int = 0
    bytes_received: int = 0
    rounds: list[Round] = field(default_factory=list)

    def add(self, done: Round) -> None:
        self.messages += done.repeat * (done.to is not None)
        self.bytes_sent += done.repeat * done.sent
        self.bytes_received += done.repeat * done.received
        self.rounds.append(done)


def ring(rank: int, size: int, elements: int, itemsize: int) -> Round:
    """The rounds of one rank in a ring all-reduce of `elements`: reduce-scatter, then all-gather.

    Chunks differ by one element where P does not divide `elements`. Every round counts the longest, which
    sets the pace: the same on all ranks, and less than 2 P elements per rank more than what crosses.
    """
    chunk = -(-elements // size) * itemsize
    return Round((rank + 1) % size, chunk, (rank - 1) % size, chunk, repeat=2 * (size - 1))


# Closed forms: seconds for P = `size` nodes, exact for powers of two (the ring for every P that divides m).


def dense_ring(size: int, parameters: int, link: Link, itemsize: int = 4) -> float:
    """2 (P-1) alpha + 2 (P-1)/P m b, b = seconds per element."""
    return 2 * (size - 1) * (link.alpha_s + parameters / size * itemsize * link.beta_s_per_byte)


def topk_allgather(size: int, k: int, link: Link, pair_bytes: int = PAIR_BYTES) -> float:
    """alpha log2 P + 2 (P-1) k b: recursive doubling, or Bruck for any P."""
    return _log2(size) * link.alpha_s + (size - 1) * k * pair_bytes * link.beta_s_per_byte


def gtopk_tree_and_broadcast(size: int, k: int, link: Link, pair_bytes: int = PAIR_BYTES) -> float:
    """2 alpha log2 P + 4 k b log2 P: the paper's binomial tree to rank 0, then the broadcast."""
    return 2 * _log2(size) * link.seconds(k * pair_bytes)


def gtopk_butterfly(size: int, k: int, link: Link, pair_bytes: int = PAIR_BYTES) -> float:
    """alpha log2 P + 2 k b log2 P: every rank merges in every round (the authors' README from July 2019)."""
    return _log2(size) * link.seconds(k * pair_bytes)


def parameter_server(size: int, parameters: int, link: Link, itemsize: int = 4) -> float:
    """2 (P-1) (alpha + m b): rank 0 is the server, its one link carries every push and every pull in turn."""
    return 2 * (size - 1) * link.seconds(parameters * itemsize)


def _log2(size: int) -> int:
    return math.ceil(math.log2(size))


# The replay.


def seconds(
    schedule: Sequence[Sequence[Round]],
    alpha_s: float,
    beta_s_per_byte: float,
    slow: Mapping[int | tuple[int, int], Link] | None = None,
) -> float:
    """Seconds from a common start until the last rank has done its rounds, `schedule[rank]`.

    `slow` overrides single links: the key `(i, j)` is the direction from i to j, the key `i` all links of
    node i (of two such nodes the slower counts). Raises ValueError where a message lacks its other end.
    """
    return max(finish(schedule, alpha_s, beta_s_per_byte, slow), default=0.0)


def finish(
    schedule: Sequence[Sequence[Round]],
    alpha_s: float,
    beta_s_per_byte: float,
    slow: Mapping[int | tuple[int, int], Link] | None = None,
) -> list[float]:
    """When each rank is done, in seconds.

    The n-th message from i to j is what j receives n-th from i. It starts when both have come to that round,
    and a round ends for a rank when both its messages have. So every end is a maximum of sums, and the order
    in which ranks are visited does not matter.
    """
    return _Replay(schedule, Link(alpha_s, beta_s_per_byte), slow or {}).run()


class _Replay:
    def __init__(
        self,
        schedule: Sequence[Sequence[Round]],
        link: Link,
        slow: Mapping[int | tuple[int, int], Link],
    ) -> None:
        self.schedule, self.link, self.slow = schedule, link, slow
        self.at = [0] * len(schedule)  # the round each rank has come to
        self.time = [0.0] * len(schedule)  # when it came there
        self.ends = [0.0] * len(schedule)  # the end of that round, as far as it is known
        self.missing = [0] * len(schedule)  # messages of that round whose other end has not come
        self.arrivals: dict[tuple[int, int], tuple[int, float, int, int]] = {}  # one end of (from, to) waits
        self.waiting: dict[int, Round] = {}  # ranks at a repeated round

    def run(self) -> list[float]:
        ready = deque(range(len(self.schedule)))
        while ready:
            rank = ready.popleft()
            if self.at[rank] < len(self.schedule[rank]):
                ready.extend(self._arrive(rank, self.schedule[rank][self.at[rank]]))
        stuck = [rank for rank, rounds in enumerate(self.schedule) if self.at[rank] < len(rounds)]
        if stuck:
            done = self.schedule[stuck[0]][self.at[stuck[0]]]
            raise ValueError(f"rank {stuck[0]} waits forever in its round {self.at[stuck[0]]}: {done}")
        return self.time

    def _arrive(self, rank: int, here: Round) -> list[int]:
        """Let `rank` come to its next round; return the ranks that can go on because of it."""
        if here.repeat > 1:
            self.waiting[rank] = here
            group = self._group(rank)
            return self._repeat(group) if group else []
        self.ends[rank] = self.time[rank]
        self.missing[rank] = (here.to is not None) + (here.source is not None) if here.repeat else 0
        if not self.missing[rank]:
            return self._leave([rank])
        going: list[int] = []
        if here.to is not None:
            going += self._meet((rank, here.to), rank, here.sent)
        if here.source is not None:
            going += self._meet((here.source, rank), rank, here.received)
        return self._leave(going)

    def _meet(self, pair: tuple[int, int], rank: int, size: int) -> list[int]:
        """One end of the next message of `pair` is here: wait for the other end, or time the message."""
        other = self.arrivals.get(pair)
        if other is None:
            self.arrivals[pair] = (rank, self.time[rank], size, self.at[rank])
            return []
        del self.arrivals[pair]
        if other[2] != size:
            raise ValueError(f"rank {pair[0]} to {pair[1]}: {size} bytes at one end, {other[2]} at the other")
        end = max(self.time[rank], other[1]) + self._link(pair).seconds(size)
        for at_end in (rank, other[0]):
            self.ends[at_end] = max(self.ends[at_end], end)
            self.missing[at_end] -= 1
        return [at_end for at_end in (rank, other[0]) if not self.missing[at_end]]

    def _leave(self, ranks: list[int]) -> list[int]:
        for rank in ranks:
            self.time[rank] = self.ends[rank]
            self.at[rank] += 1
        return ranks

    def _group(self, rank: int) -> list[int] | None:
        """All ranks that repeat a round together with `rank`, or None while one of them has not come."""
        group, unseen = {rank}, [rank]
        while unseen:
            here = self.waiting[unseen.pop()]
            for partner in (here.to, here.source):
                if partner is None or partner in group:
                    continue
                if partner not in self.waiting:
                    return None
                group.add(partner)
                unseen.append(partner)
        return sorted(group)

    def _repeat(self, group: list[int]) -> list[int]:
        """All repeats at once: one vector operation over the ranks for each.

        The map from one round's times to the next is linear in the max-plus algebra: once all clocks advance
        by the same amount they do so for ever, and where all links are alike that is after the first round.
        """
        rounds = [self.waiting.pop(rank) for rank in group]
        place = {rank: position for position, rank in enumerate(group)}
        for rank, here in zip(group, rounds, strict=True):
            if here.to is not None:
                there = rounds[place[here.to]]
                if (there.source, there.received, there.repeat) != (rank, here.sent, here.repeat):
                    raise ValueError(f"ranks {rank} and {here.to} repeat unlike rounds: {here}, {there}")
        pairs = list(zip(group, rounds, strict=True))
        # Who has no partner is its own, at no cost.
        to = np.array([place[rank if here.to is None else here.to] for rank, here in pairs])
        source = np.array([place[rank if here.source is None else here.source] for rank, here in pairs])
        cost = np.array(
            [0.0 if here.to is None else self._link((rank, here.to)).seconds(here.sent) for rank, here in pairs]
        )
        cost_in = np.where(source == np.arange(len(group)), 0.0, cost[source])
        time = np.array([self.time[rank] for rank in group])
        left = rounds[0].repeat
        while left:
            after = np.maximum(np.maximum(time, time[to]) + cost, np.maximum(time, time[source]) + cost_in)
            step = after - time
            left -= 1
            time = after
            if np.ptp(step) <= 1e-12 * np.max(step, initial=0.0):
                time, left = after + left * step, 0
        for rank, end in zip(group, time.tolist(), strict=True):
            self.ends[rank] = end
        return self._leave(group)

    def _link(self, pair: tuple[int, int]) -> Link:
        if not self.slow:
            return self.link
        if pair in self.slow:
            return self.slow[pair]
        ends = [self.slow[rank] for rank in pair if rank in self.slow]
        return max(ends, key=lambda link: link.seconds(1 << 20), default=self.link)
