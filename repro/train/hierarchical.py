"""Aggregates on two levels: sums inside each machine, runs any algorithm between machines, sends its update inside."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from repro.algorithms import Algorithm
from repro.comm.collective import Collective
from repro.comm.subset import among, join
from repro.comm.traffic import Round, bytes_sent
from repro.config.schema import Config, RunError
from repro.json_text import json_text
from repro.screen import plural
from repro.whole_files import write_whole

if TYPE_CHECKING:
    from repro.cluster.ranks import Rank


FILE = "machines.json"  # in the run folder: which ranks are on one machine, as the run began


def keep_machines(config: Config, rank: Rank, checkpoints: Path) -> None:
    """Gives ranks the machines with which the run began, wherever they were started again. Collective.

    Leaders have what others have not, and sums in another order have other bits. So a run that goes on keeps its
    groups, also where some of their messages now cross the network. Raises RunError where they are not known any more.
    """
    if not config.hierarchical or config.machines is not None:
        return
    machines = rank.machines
    if rank.number == 0 and any(checkpoints.glob("step-*")):
        machines = _kept(config.folder / FILE)
        if len(machines) != rank.size:
            raise RunError(
                f"{config.folder / FILE}, the machines of the run's ranks, is missing or damaged; "
                "type results=FOLDER to begin anew"
            )
    elif rank.number == 0:
        write_whole(config.folder / FILE, json_text(machines) + "\n")
    rank.machines = rank.control.gather_objects(machines)[0]


def elsewhere(config: Config, machines: Sequence[str]) -> str:
    """Says that a run that is done had its ranks divided among machines otherwise; "" where it had not."""
    kept = _kept(config.folder / FILE)
    if not config.hierarchical or config.machines is not None or len(kept) != len(machines):
        return ""
    there, here = ([names.index(name) for name in names] for names in (kept, list(machines)))
    if there == here:
        return ""
    return (
        f"{config.folder} holds this run with its ranks on {plural(len(set(there)), 'machine')}; they are on "
        f"{len(set(here))} now, or divided otherwise, which makes other sums. For a run of its own type "
        "results=FOLDER, or machines=N"
    )


def _kept(file: Path) -> list[str]:
    try:
        return [str(machine) for machine in json.loads(file.read_text())]
    except (OSError, ValueError, TypeError):
        return []


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

    def begin(self, parameters: Tensor) -> None:
        if self.inner is not None:
            self.inner.begin(parameters)

    def skip_warmup(self) -> None:
        if self.inner is not None:
            self.inner.skip_warmup()

    def clear_residual(self) -> None:
        if self.inner is not None:
            self.inner.clear_residual()

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
    return bytes_sent(done for done in rounds if done.to is not None and machines[done.to] == machines[rank])
