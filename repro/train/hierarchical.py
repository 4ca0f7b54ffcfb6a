"""Aggregates on two levels: sums inside each machine, runs any algorithm between machines, sends its update inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from repro.algorithms import Algorithm
from repro.comm.collective import Collective, Transport
from repro.comm.traffic import Round


class Hierarchical(Algorithm):
    """`machines[rank]` is the machine of each rank; `make` makes the algorithm, which only the machines' leaders have.

    A machine's gradients enter it as sum * machines / ranks: the update is the mean over all ranks, also where some
    machines have more of them. `period` is that of the algorithm, which other ranks must know too.
    """

    def __init__(self, make: Callable[[], Algorithm], machines: Sequence[str], rank: int, period: int = 1):
        first = {machine: number for number, machine in reversed(list(enumerate(machines)))}
        self.mates = [number for number, machine in enumerate(machines) if machine == machines[rank]]
        self.leaders = sorted(first.values())
        self.scale = len(self.leaders) / len(machines)
        self.inner = make() if rank == self.mates[0] else None
        self.period = period
        self.messages_depend_on_values = self.inner is not None and self.inner.messages_depend_on_values

    @property
    def selected(self) -> int | None:
        return None if self.inner is None else self.inner.selected

    def skip_warmup(self) -> None:
        if self.inner is not None:
            self.inner.skip_warmup()

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        inside = Collective(Subset(collective.transport, self.mates))
        if self.inner is None:
            inside.send(gradient, 0)
        else:
            for mate in range(1, inside.size):
                gradient += inside.recv(gradient, mate)
            between = Collective(Subset(collective.transport, self.leaders))
            self.inner.density = self.density
            join(collective, inside)
            gradient = self.inner.step(gradient.mul_(self.scale), between)
            join(collective, between)
        update = inside.broadcast(gradient)
        join(collective, inside)
        return update

    def state_dict(self) -> dict[str, Any]:
        return {} if self.inner is None else self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.inner is not None:
            self.inner.load_state_dict(state)


def join(collective: Collective, part: Collective) -> None:
    """Counts in `collective` what `part`, a collective of some of its ranks, has sent since the last call."""
    members = part.transport.members if isinstance(part.transport, Subset) else []
    part.traffic.rounds = [
        done._replace(to=_name(members, done.to), source=_name(members, done.source)) for done in part.traffic.rounds
    ]
    collective.join(part, part.seconds)


def _name(members: Sequence[int], place: int | None) -> int | None:
    return None if place is None else members[place]


def inside(machines: Sequence[str], rank: int, rounds: Sequence[Round]) -> int:
    """Returns how many bytes of `rounds` this rank sent to ranks of its own machine."""
    return sum(d.sent * d.repeat for d in rounds if d.to is not None and machines[d.to] == machines[rank])


class Subset:
    """A transport among some ranks of another: member i is the rank `members[i]`."""

    def __init__(self, whole: Transport, members: Sequence[int]):
        self.whole, self.members = whole, members
        self.rank, self.size = members.index(whole.rank), len(members)

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
