"""Measures one iteration before a run: timed on one rank alone, its messages modelled, or rehearsed in the lab."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from repro import algorithms
from repro.algorithms import ddp
from repro.comm import bucket_spans, replay
from repro.comm.common_start import from_common_start
from repro.comm.traffic import Link, Round
from repro.config.compose import named_network
from repro.config.schema import Config
from repro.iteration_time import IterationTime, measured_source
from repro.runs.run_folder import time_line
from repro.timing import (
    compress_time,
    node_profile,
    pipelined,
    sleeping_model,
    stated_iteration,
    stated_stages,
    wire_replay,
)
from repro.timing.one_rank import Calibration, calibrate
from repro.train import aggregator, buckets, split
from repro.train.step import Worker

if TYPE_CHECKING:
    from repro.cluster.ranks import Rank
    from repro.data import Dataset

REHEARSALS = 6  # the first only warms up
Rounds = list[list[Round]]  # one list per rank


def before_a_run(config: Config, rank: Rank, data: Dataset) -> list[dict[str, Any]]:
    """Returns the `iteration_time` lines on rank 0, and [] on other ranks. Collective.

    Modelled lines come first, for the chosen network and then for those of `also_on`; in the lab a measured one
    follows. A run whose compute is stated (`node`) has no data, and trains nothing."""
    if config.node is not None:
        return (stated_iteration if config.stages == 1 else stated_stages).lines(config, rank)
    if config.stages > 1:
        return of_stages(config, rank)
    worker = Worker(config, rank, data, alone=True)  # a copy: the run's own state stays untouched
    worker.algorithm.density = config.density
    batches = list(islice(worker.batches(0), config.accumulate))
    layers = list(worker.replica.model.parameters())

    def compute() -> None:
        worker.backward(batches)
        worker.replica.apply(worker.replica.gradient, lr=0.0)

    worker.backward(batches[:1])  # on all ranks at once; what it costs is timed afterwards, on one rank
    gradient = worker.replica.gradient
    calibration = calibrate(gradient, compute, layers, worker.algorithm, rank.collective.transport, rank.control)
    lines = []
    if calibration is not None:
        calibration = stated(config, calibration)
        for wire in (config.network, *map(named_network, config.also_on)):
            there = dataclasses.replace(config, network=wire)
            lines.append(time_line(there, "modelled", modelled(there, rank, worker, calibration)))
    if config.cluster.name == "lab":
        rehearsed = rehearse(config, rank, worker, rank.control.gather_objects(calibration)[0])
        held = config.cluster.held and not algorithms.of(config.algo).wraps
        source = measured_source(rank.dilation, held)
        lines.append(time_line(config, source, rehearsed, rank.dilation))
    return lines if rank.number == 0 else []


def of_stages(config: Config, rank: Rank) -> list[dict[str, Any]]:
    """Returns what an iteration of pipelines is modelled to take. Collective; a stage's compress is timed by rank 0."""
    divided = split.of_run(config, rank)
    if rank.number or divided is None:
        return []
    shapes = node_profile.layers(config)
    peers = dataclasses.replace(config, nodes=config.nodes // config.stages, stages=1, cuts=[])
    parameters = sum(block.parameters for block in divided.blocks)
    one = pipelined.iteration(config, divided, compress_time.compress(peers, parameters, shapes))
    wires = (config.network, *map(named_network, config.also_on))
    return [
        time_line(dataclasses.replace(config, network=wire), "modelled", one.parts(Link(*ends)))
        for wire in wires
        for ends in [(wire.alpha_s, wire.beta_s_per_byte)]
    ]


def stated(config: Config, calibration: Calibration) -> Calibration:
    """Scales the calibration to the compute seconds that the configuration states, if it states any."""
    if config.compute_s is None:
        return calibration
    stretch = config.compute_s / calibration.compute_s
    ready = [moment * stretch for moment in calibration.ready]
    return dataclasses.replace(calibration, compute_s=config.compute_s, ready=ready)


def overlaps(config: Config, worker: Worker) -> bool:
    """Returns whether buckets are sent during backward; DDP is a `Buckets` too, and always sends so."""
    return isinstance(worker.algorithm, buckets.Buckets) and (config.overlap == "on" or config.bucket_mb is None)


def modelled(config: Config, rank: Rank, worker: Worker, calibration: Calibration) -> IterationTime:
    """Returns the iteration time on the configured network. Messages inside a machine cost nothing."""
    wire = config.network
    pairs = itertools.permutations(range(rank.size), 2) if config.hierarchical else ()
    inside: dict[int | tuple[int, int], Link]
    inside = {(i, j): Link(0.0, 0.0) for i, j in pairs if rank.machines[i] == rank.machines[j]}

    def seconds(all_rounds: Rounds) -> float:
        return replay.seconds(all_rounds, wire.alpha_s, wire.beta_s_per_byte, inside)

    if overlaps(config, worker):
        each = [seconds(part) for part in bucketed(calibration)]
        hidden = bucket_spans.hidden_s(ready(worker, calibration), compress(worker, calibration), each)
        return calibration.iteration(sum(each), hidden)
    return calibration.iteration(seconds(calibration.rounds) / calibration.period)


def bucketed(calibration: Calibration) -> list[Rounds]:
    """Splits the calibrated rounds by bucket; each part has one list per rank."""
    parts = []
    for number in range(len(calibration.cuts[0])):
        ends = [(cuts[number - 1] if number else 0, cuts[number]) for cuts in calibration.cuts]
        parts.append([own[start:stop] for own, (start, stop) in zip(calibration.rounds, ends, strict=True)])
    return parts


def ready(worker: Worker, calibration: Calibration) -> list[float]:
    """Returns when the last layer of each bucket has its gradient, in seconds from the start of a step."""
    shapes = [layer.shape for layer in worker.replica.model.parameters()]
    return bucket_spans.when_full(worker.spans, shapes, calibration.ready)


def compress(worker: Worker, calibration: Calibration) -> list[float]:
    """Divides the compress seconds among the buckets by their size."""
    return bucket_spans.split_seconds(worker.spans, calibration.compress_s)


def rehearse(config: Config, rank: Rank, worker: Worker, calibration: Calibration) -> IterationTime:
    """Sends the step's own messages again on the lab's real links, timed from a common start until the last rank ends.

    Where buckets overlap, a rank sleeps instead of computing; DDP itself runs, over layers whose backward sleeps.
    Where time is dilated, sleep lasts D times as long, and what was measured is divided by D.
    """
    wraps, dilation = algorithms.of(config.algo).wraps, rank.dilation
    wire = ddp.group_transport(rank.collective) if wraps else rank.collective.transport  # what it sends by itself

    def time_it(action: Callable[[], object]) -> float:
        return statistics.median(from_common_start(action, rank, REHEARSALS)[1:]) / dilation

    communicate = time_it(wire_replay.play(calibration.rounds[rank.number], wire)) / calibration.period
    if not overlaps(config, worker):
        return calibration.iteration(communicate)
    shapes = [layer.shape for layer in worker.replica.model.parameters()]
    algorithm = aggregator.load(config, shapes, rank)
    if wraps:
        moments = [dilation * moment for moment in calibration.ready]
        model = sleeping_model.StandIn(shapes, moments, rank.now, rank.sleep_until)
        wrapped = algorithm.wrap(model, rank.collective)
        seconds = time_it(lambda: wrapped().backward())
        end = max(calibration.ready)
    else:
        plays = [wire_replay.play(part[rank.number], wire) for part in bucketed(calibration)]
        work = compress(worker, calibration)
        starts = [moment + sum(work[: i + 1]) for i, moment in enumerate(ready(worker, calibration))]
        slowed = [dilation * moment for moment in starts]
        seconds, end = time_it(lambda: stated_iteration.play_at(rank, slowed, plays, [])), starts[-1]
    return calibration.overlapped(communicate, seconds - end)
