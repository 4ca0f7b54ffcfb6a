"""Times what one node compresses in a step, on this machine: its own part, and what its peers' messages cost it."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from repro import algorithms
from repro.algorithms import Algorithm
from repro.clock import clock
from repro.cluster import devices
from repro.comm.bucket_spans import Shapes
from repro.comm.collective import Collective
from repro.compression.sparse import select
from repro.config.schema import Config
from repro.density import entries
from repro.rng import derive
from repro.timing import stand_ins
from repro.timing.dry_run import Echo
from repro.timing.one_rank import Player, repeated


def compress(config: Config, parameters: int, shapes: Shapes | None = None) -> float:
    """Returns the seconds of compress of rank 0 in one step on `config.nodes` nodes, after any warm-up.

    It runs alone. Its peers send the largest entries of another random vector where k pairs travel, and zeros
    elsewhere. Where lengths are sent first no entries of theirs would follow, and where a message holds a part of k
    they are of some ranks' own ranges: what those cost is `of_peers`.
    """
    device = devices.of_one(config)
    drawn = torch.Generator(device).manual_seed(derive(config.seed, "timing"))
    gradient = torch.randn(parameters, device=device, generator=drawn)
    algorithm = stand_ins.steady(config.algo, parameters, gradient.device, shapes)
    algorithm.density = config.density
    echo = Echo(0, config.nodes, _message(algorithm, gradient.flip(0)))

    def once() -> float:
        algorithm.skip_warmup()
        if algorithm.messages_depend_on_values:
            algorithm.clear_residual()
        return _period(algorithm, [gradient] * algorithm.period, echo)

    once()  # warms up
    own_s = max(0.0, statistics.median(repeated(once)))
    if algorithm.messages_depend_on_values:
        return own_s + of_peers(config, parameters, gradient.device)
    if algorithm.splits_k:  # among fewer peers each sends more: as much in all
        few = dataclasses.replace(config, nodes=min(config.nodes, stand_ins.MOST_THREADS))
        return own_s + of_peers(few, parameters, gradient.device)
    return own_s


def of_peers(config: Config, parameters: int, device: torch.device | str = "cpu") -> float:
    """Returns by how much a step of rank 0 is longer for the entries that its peers send, in seconds.

    All ranks run on stand-ins with few more entries than they select. Then rank 0 does its part again alone, with what
    it received, and with zeros. Raises ConfigError where that are too many ranks.
    """
    if config.nodes == 1:
        return 0.0
    k = entries(config.density, parameters)
    _, lone = stand_ins.all_at_once(config.algo, config.nodes, parameters, k, device)

    def once(peers: Callable[[], Echo | Player]) -> float:
        lone.algorithm.load_state_dict(lone.state)
        return _period(lone.algorithm, lone.gradients, peers())

    def with_entries() -> float:
        return once(lambda: Player(lone.recorder))

    def without() -> float:
        return once(lambda: Echo(0, config.nodes))

    with_entries()  # warms up
    return max(0.0, statistics.median(repeated(with_entries)) - statistics.median(repeated(without)))


def _period(algorithm: Algorithm, gradients: Iterable[Tensor], peers: Echo | Player) -> float:
    """Returns the mean seconds of its steps on these gradients, without those of writing what `peers` sent."""
    collective, waited, total = Collective(peers), peers.seconds, 0.0
    for gradient in gradients:
        own = gradient.clone()  # an algorithm may write into what it is given
        start = clock()
        algorithms.one_step(algorithm, own, collective)
        total += clock() - start
    return (total - (peers.seconds - waited)) / algorithm.period


def _message(algorithm: Algorithm, vector: Tensor) -> Tensor | None:
    if algorithm.wire is None:
        return None
    k = entries(algorithm.density, vector.numel())
    return algorithm.wire.pack(select(vector, k), k, keeps=False)[0]
