"""Makes collectives of some of the ranks; what they send is counted with what all ranks send."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from repro.comm.collective import Collective, Transport


def among(collective: Collective, members: Sequence[int]) -> Collective:
    """Returns a collective of these ranks of `collective`, on its wires: member i is the rank `members[i]`."""
    return Collective(Subset(collective.transport, members), members, of=collective)


def join(collective: Collective, part: Collective) -> None:
    """Counts in `collective` what `part`, made by `among`, has sent and waited for since the last call."""
    part.traffic.rounds = [
        done._replace(to=_name(part, done.to), source=_name(part, done.source)) for done in part.traffic.rounds
    ]
    collective.join(part, part.seconds)
    collective.hidden_s, part.hidden_s = collective.hidden_s + part.hidden_s, 0.0


def _name(part: Collective, place: int | None) -> int | None:
    return None if place is None else part.names[place]


class Subset:
    """A transport among some ranks of another: member i is the rank `members[i]`."""

    segments = 1  # a round of `all_reduce` is one message of the whole transport

    def __init__(self, whole: Transport, members: Sequence[int]):
        self.whole, self.members = whole, members
        self.rank, self.size, self.header = members.index(whole.rank), len(members), whole.header

    def send(self, x: Tensor, peer: int) -> None:
        self.whole.send(x, self.members[peer])

    def recv(self, into: Tensor, peer: int) -> None:
        self.whole.recv(into, self.members[peer])

    def exchange(self, x: Tensor, to: int, into: Tensor, source: int) -> None:
        self.whole.exchange(x, self.members[to], into, self.members[source])

    def all_reduce(self, x: Tensor) -> None:
        """Sums around a ring: every chunk takes one path, so that all members get the same bits."""
        width = -(-x.numel() // self.size)
        chunks = F.pad(x.reshape(-1), (0, self.size * width - x.numel())).view(self.size, width)
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        received = chunks.new_empty(width)
        for step in range(2 * (self.size - 1)):
            sent, come = (self.rank - step) % self.size, (self.rank - step - 1) % self.size
            self.exchange(chunks[sent], right, received, left)
            chunks[come] = chunks[come] + received if step < self.size - 1 else received
        x.copy_(chunks.view(-1)[: x.numel()].view_as(x))

    def aside(self) -> Subset:
        return Subset(self.whole.aside(), self.members)

    def close(self) -> None:
        self.whole.close()
