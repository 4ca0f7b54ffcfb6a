"""Aggregates on two levels: sums inside each machine, runs any algorithm between machines, sends its update inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from repro.algorithms import Algorithm
from repro.comm.collective import Collective
from repro.comm.subset import among, join
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
        inside = among(collective, self.mates)
        if self.inner is None:
            inside.send(gradient, 0)
        else:
            for mate in range(1, inside.size):
                gradient += inside.recv(gradient, mate)
            between = among(collective, self.leaders)
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


def inside(machines: Sequence[str], rank: int, rounds: Sequence[Round]) -> int:
    """Returns how many bytes of `rounds` this rank sent to ranks of its own machine."""
    return sum(d.sent * d.repeat for d in rounds if d.to is not None and machines[d.to] == machines[rank])
