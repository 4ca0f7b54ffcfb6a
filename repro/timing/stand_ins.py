"""Runs algorithms on stand-ins: shorter vectors of which they select as many entries as of a whole gradient."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.algorithms import Algorithm
from repro.comm.collective import Collective
from repro.comm.traffic import Round
from repro.comm.transport import MemoryTransport, Wires
from repro.config.parts import Algo
from repro.config.schema import ConfigError
from repro.timing.one_rank import Recorder

MOST_THREADS = 256  # ranks that can run at once, where messages depend on values
SURPLUS = 8  # stand-in parameters per selected entry, where messages depend on values


def steady(
    algo: Algo, parameters: int, device: torch.device | str = "cpu", shapes: Sequence[Sequence[int]] | None = None
) -> Algorithm:
    """Returns the algorithm as it is in most steps of a run: its warm-up, if it has one, is over."""
    algorithm = algorithms.load(algo, parameters, device, shapes)
    algorithm.skip_warmup()
    return algorithm


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
