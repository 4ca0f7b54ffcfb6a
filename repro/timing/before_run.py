"""Seconds of one iteration before a run: timed on one rank alone, its messages modelled, or rehearsed in the lab."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from repro import buckets, network, rehearsal, standin
from repro.calibrate import Calibration, calibrate
from repro.config import Config, named_network
from repro.network import Link, Round
from repro.trainer import Worker

if TYPE_CHECKING:
    from repro.data import Dataset
    from repro.ranks import Rank

REHEARSALS = 6  # the first only warms up
Schedule = list[list[Round]]


def before_a_run(config: Config, rank: Rank, data: Dataset) -> list[dict[str, Any]]:
    """Collective. The `iteration_time` lines: modelled, and in the lab measured too; nothing on other ranks than 0.

    The chosen network's first, then those of `also_on`.
    """
    probe = Worker(config, rank, data, alone=True)  # a copy: the run's own state stays untouched
    probe.algorithm.density = config.density
    batches = list(islice(probe.batches(0), config.accumulate))
    layers = list(probe.replica.model.parameters())

    def compute() -> None:
        probe.backward(batches)
        probe.replica.apply(probe.replica.gradient, lr=0.0)

    probe.backward(batches[:1])  # on all ranks at once; what it costs is timed afterwards, on one rank
    gradient = probe.replica.gradient
    found = calibrate(gradient, compute, layers, probe.algorithm, rank.collective.transport, rank.control)
    lines = []
    if found is not None:
        found = stated(config, found)
        for wire in (config.network, *map(named_network, config.also_on)):
            there = dataclasses.replace(config, network=wire)
            lines.append(line(there, "modelled", *modelled(there, rank, probe, found)))
    if config.cluster.name == "lab":
        seconds = rehearse(config, rank, probe, rank.control.gather_objects(found)[0])
        lines.append(line(config, "measured", *seconds))
    return lines if rank.rank == 0 else []


def line(
    config: Config, source: str, compute_s: float, compress_s: float, communicate_s: float, hidden_s: float
) -> dict[str, Any]:
    """An iteration takes the sum of the first three, less `hidden_s`: what went on beside the rest of it."""
    return {
        "kind": "iteration_time", "source": source, "network": config.network.name, "nodes": config.nodes,
        "compute_s": compute_s, "compress_s": compress_s, "communicate_s": communicate_s, "hidden_s": hidden_s,
    }  # fmt: skip


def stated(config: Config, found: Calibration) -> Calibration:
    """What was timed, stretched to the compute seconds that the configuration states, if it states any."""
    if config.compute_s is None:
        return found
    stretch = config.compute_s / found.compute_s
    ready = [moment * stretch for moment in found.ready]
    return dataclasses.replace(found, compute_s=config.compute_s, ready=ready)


def overlaps(config: Config, probe: Worker) -> bool:
    """Whether buckets are sent beside backward; DDP's are in `Buckets` here too."""
    return isinstance(probe.algorithm, buckets.Buckets) and (config.overlap == "on" or config.bucket_mb is None)


def modelled(config: Config, rank: Rank, probe: Worker, found: Calibration) -> tuple[float, float, float, float]:
    """compute, compress, communicate and hidden seconds. What stays inside a machine costs nothing."""
    wire = config.network
    pairs = itertools.permutations(range(rank.size), 2) if config.hierarchical else ()
    inside: dict[int | tuple[int, int], Link]
    inside = {(i, j): Link(0.0, 0.0) for i, j in pairs if rank.machines[i] == rank.machines[j]}

    def seconds(schedule: Schedule) -> float:
        return network.seconds(schedule, wire.alpha_s, wire.beta_s_per_byte, inside)

    if overlaps(config, probe):
        each = [seconds(part) for part in bucketed(found)]
        hidden = buckets.hidden_s(ready(probe, found), compress(probe, found), each)
        return found.compute_s, found.compress_s, sum(each), hidden
    communicate = seconds(found.schedule) / found.period
    covered = found.delay * (found.compute_s + found.compress_s) / found.period
    return found.compute_s, found.compress_s, communicate, min(communicate, covered)


def bucketed(found: Calibration) -> list[Schedule]:
    """The schedule of each bucket."""
    parts = []
    for number in range(len(found.cuts[0])):
        ends = [(cuts[number - 1] if number else 0, cuts[number]) for cuts in found.cuts]
        parts.append([own[start:stop] for own, (start, stop) in zip(found.schedule, ends, strict=True)])
    return parts


def ready(probe: Worker, found: Calibration) -> list[float]:
    """When each bucket's last layer has its gradient."""
    shapes = [layer.shape for layer in probe.replica.model.parameters()]
    return buckets.ready(getattr(probe.algorithm, "spans", []), shapes, found.ready)


def compress(probe: Worker, found: Calibration) -> list[float]:
    """Each bucket's share of the compress seconds, by its size."""
    return buckets.shares(getattr(probe.algorithm, "spans", []), found.compress_s)


def rehearse(config: Config, rank: Rank, probe: Worker, found: Calibration) -> tuple[float, float, float, float]:
    """The step's own messages once more, from a common start to the last rank, on the lab's real links.

    Where buckets overlap, a rank sleeps while it would compute; DDP is itself, over layers whose backward sleeps.
    """
    wire = rank.collective.transport

    def time_it(action: Callable[[], object]) -> float:
        return statistics.median(rehearsal.time_together(action, rank.control, REHEARSALS)[1:])

    communicate = time_it(rehearsal.play(found.schedule[rank.rank], wire)) / found.period
    if not overlaps(config, probe):
        covered = found.delay * (found.compute_s + found.compress_s) / found.period
        return found.compute_s, found.compress_s, communicate, min(communicate, covered)
    shapes = [layer.shape for layer in probe.replica.model.parameters()]
    worker = buckets.load(config, shapes, rank.device, rank.machines, rank.rank)
    if hasattr(worker, "wrap"):
        model = standin.StandIn(shapes, found.ready)
        wrapped = worker.wrap(model, rank.collective)
        taken = time_it(lambda: wrapped().backward())
        end = max(found.ready)
    else:
        plays = [rehearsal.play(part[rank.rank], wire) for part in bucketed(found)]
        work = compress(probe, found)
        starts = [moment + sum(work[: i + 1]) for i, moment in enumerate(ready(probe, found))]
        taken, end = time_it(lambda: play_at(starts, plays)), starts[-1]
    return found.compute_s, found.compress_s, communicate, max(0.0, communicate - (taken - end))


def play_at(starts: Sequence[float], plays: Sequence[Callable[[], None]]) -> None:
    """Play each bucket's messages when it is ready, so many seconds from now, or when the wire is free after that."""
    began = time.monotonic()
    for start, play in zip(starts, plays, strict=True):
        time.sleep(max(0.0, began + start - time.monotonic()))
        play()
