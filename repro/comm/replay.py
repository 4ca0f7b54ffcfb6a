"""Computes how long counted rounds take on alpha-beta links, for any number of nodes, uneven rounds and slow links.

A message of n bytes takes alpha + beta * n seconds; a node sends and receives at the same time (full duplex). Where a
closed form exists (`cost_formulas`), both agree to rounding.
"""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from repro.comm.traffic import Link, Round


def seconds(
    all_rounds: Sequence[Sequence[Round]],
    alpha_s: float,
    beta_s_per_byte: float,
    slow: Mapping[int | tuple[int, int], Link] | None = None,
) -> float:
    """Returns the seconds from a common start until the last rank has finished its rounds, `all_rounds[rank]`.

    `slow` overrides single links: the key `(i, j)` is the direction from i to j, the key `i` all links of
    node i (of two such nodes the slower counts). Raises ValueError if a message lacks its other end.
    """
    return max(finish(all_rounds, alpha_s, beta_s_per_byte, slow), default=0.0)


def finish(
    all_rounds: Sequence[Sequence[Round]],
    alpha_s: float,
    beta_s_per_byte: float,
    slow: Mapping[int | tuple[int, int], Link] | None = None,
) -> list[float]:
    """Returns when each rank has finished, in seconds.

    The n-th message from i to j is what j receives n-th from i. It starts when both have reached that round, and
    a round ends for a rank when both its messages have ended. So every end is a maximum of sums, and the order in
    which ranks are visited does not matter. So a node waits alpha after each message that it sends or receives in turn:
    a server's of many rounds. The lab, which holds messages at their receiver, lets a sender go on when its link has
    carried the message, and of several that come to one node each other's latency passes at once.
    """
    return _Replay(all_rounds, Link(alpha_s, beta_s_per_byte), slow or {}).run()


class _Replay:
    def __init__(
        self,
        all_rounds: Sequence[Sequence[Round]],
        link: Link,
        slow: Mapping[int | tuple[int, int], Link],
    ) -> None:
        self.all_rounds, self.link, self.slow = all_rounds, link, slow
        self.at = [0] * len(all_rounds)  # the round that each rank has reached
        self.time = [0.0] * len(all_rounds)  # when it reached that round
        self.ends = [0.0] * len(all_rounds)  # the end of that round, as far as known
        self.missing = [0] * len(all_rounds)  # messages of that round whose other end has not arrived
        self.arrivals: dict[tuple[int, int], tuple[int, float, int, int]] = {}  # one end of (from, to) waits
        self.waiting: dict[int, Round] = {}  # ranks at a repeated round

    def run(self) -> list[float]:
        ready = deque(range(len(self.all_rounds)))
        while ready:
            rank = ready.popleft()
            if self.at[rank] < len(self.all_rounds[rank]):
                ready.extend(self._arrive(rank, self.all_rounds[rank][self.at[rank]]))
        stuck = [rank for rank, rounds in enumerate(self.all_rounds) if self.at[rank] < len(rounds)]
        if stuck:
            done = self.all_rounds[stuck[0]][self.at[stuck[0]]]
            raise ValueError(f"rank {stuck[0]} waits forever in its round {self.at[stuck[0]]}: {done}")
        return self.time

    def _arrive(self, rank: int, here: Round) -> list[int]:
        """Lets `rank` reach its next round and returns the ranks that can continue because of it."""
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
        """Waits for the other end of the next message of `pair`, or times the message if both have arrived."""
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
        """Returns all ranks that repeat a round in step with `rank`, or None while one of them has not arrived."""
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
        """Replays all repeats, each with one vector operation over the ranks.

        The map from one round's times to the next is linear in the max-plus algebra: once all clocks advance by
        the same amount they always do, and with equal links that is so after the first round.
        """
        rounds = [self.waiting.pop(rank) for rank in group]
        place = {rank: position for position, rank in enumerate(group)}
        for rank, here in zip(group, rounds, strict=True):
            if here.to is not None:
                partner = rounds[place[here.to]]
                if (partner.source, partner.received, partner.repeat) != (rank, here.sent, here.repeat):
                    raise ValueError(f"ranks {rank} and {here.to} repeat unlike rounds: {here}, {partner}")
        pairs = list(zip(group, rounds, strict=True))
        # A rank without a partner is its own partner, at no cost.
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
