"""Seconds on real links: one-way times and their fit, collectives beside the model and the lower bound."""

from __future__ import annotations

import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from repro import algorithms, fit, lab, network, ranks, rehearsal
from repro.collective import Collective, Transport
from repro.config import Config, ConfigError
from repro.ranks import Rank
from repro.schedule import entries
from repro.sweep import table
from repro.tables import Row, readable

SIZES = [4**power for power in range(3, 13)]  # bytes, 64 B to 16 MB
PAIRS_S = 1.5  # of ping-pong at each size
PAPER = "the paper's fit of 1 GbE: alpha 0.436 ms, beta 9 ns per byte"
CASE_S = 8.0  # a slow case is repeated less often, but three times
SURPLUS = 16  # stand-in parameters per selected entry, where only k matters


# One-way times.


def measure_network(config: Config, out: Path, say: Callable[[str], None]) -> None:
    """Ping-pong between two ranks; writes out/network.json and network.yaml. Raises ConfigError, RunError."""
    if config.nodes != 2 or config.cluster.name == "local":
        raise ConfigError("repro bench network takes two processes: nodes=2 and cluster=lab, or torchrun.")
    points = ranks.launch(config, ping_pong, no_data)
    if points is None:  # another rank of torchrun or srun
        return
    # What a full token bucket lets pass costs as little as an empty message: no line has that step in it.
    credit = lab.burst(config.network.bits_per_s) if config.cluster.name == "lab" else 0
    points = [{**point, "fitted": not credit < 4 * point["bytes"] < 16 * credit} for point in points]
    fitted = [point for point in points if point["fitted"]]
    found = fit.fit([p["bytes"] for p in fitted], [p["seconds"] for p in fitted])
    out.mkdir(parents=True, exist_ok=True)
    source = f"repro bench network cluster={config.cluster.name} network={config.network.name}"
    name = f"{config.cluster.name}_{config.network.name}"
    (out / "network.yaml").write_text(fit.to_yaml(found, name, config.network.bits_per_s, source))
    report = {"command": source, **asdict(found), "bits_per_s": config.network.bits_per_s, "points": points}
    (out / "network.json").write_text(json.dumps(report, indent=1) + "\n")
    show([{**p, "fit_s": found.alpha_s + found.beta_s_per_byte * p["bytes"]} for p in points])
    say(
        f"alpha {1e3 * found.alpha_s:.4f} +- {1e3 * found.alpha_error:.4f} ms, "
        f"beta {1e9 * found.beta_s_per_byte:.3f} +- {1e9 * found.beta_error:.3f} ns per byte "
        f"(largest misfit {found.misfit:.0%}); {PAPER}"
    )
    say(f"use it: network={out / 'network.yaml'}   draw it: repro plot figures --only point_to_point")


def no_data(config: Config) -> None:
    """Benchmarks read no data set."""


def ping_pong(config: Config, rank: Rank, data: None) -> list[Row]:
    """Median and spread (half the interquartile range) of half a round trip, by message size."""
    transport, points = rank.collective.transport, []
    for size in SIZES:
        buffer = torch.zeros(size, dtype=torch.uint8)
        trip = functools.partial(_send_and_back if rank.rank == 0 else _back_and_send, transport, buffer)
        repeats = _agree(rank, trip)
        halves = [_seconds(trip) / 2 for _ in range(repeats)]
        median, spread = _middle(halves)
        points.append({"bytes": size, "seconds": median, "spread_s": spread, "repeats": repeats})
    return points


def _send_and_back(transport: Transport, buffer: torch.Tensor) -> None:
    transport.send(buffer, 1)
    transport.recv(buffer, 1)


def _back_and_send(transport: Transport, buffer: torch.Tensor) -> None:
    transport.recv(buffer, 0)
    transport.send(buffer, 0)


def _agree(rank: Rank, trip: Callable[[], None]) -> int:
    """After three trips to warm up: how many fill PAIRS_S, by rank 0's clock."""
    trip()
    taken = [_seconds(trip) for _ in range(3)]
    wanted = min(200, max(7, int(PAIRS_S / max(taken))))
    return int(rank.control.gather_objects(wanted)[0])


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _middle(values: Sequence[float]) -> tuple[float, float]:
    low, median, high = statistics.quantiles(values, n=4)
    return median, (high - low) / 2


# Collectives.


def measure_collectives(configs: Iterable[Config], sizes: Sequence[int], repeats: int, file: Path) -> list[Row]:
    """Every algorithm of `configs` on every size; fills `file` (.jsonl) as it goes. Raises ConfigError."""
    by_nodes: dict[int, list[Config]] = {}
    for config in configs:
        if config.cluster.name != "lab":
            raise ConfigError(f"cluster={config.cluster.name}: repro bench collectives needs cluster=lab.")
        by_nodes.setdefault(config.nodes, []).append(config)
    file.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with file.open("w") as lines:
        for group in by_nodes.values():
            for size in sizes:
                main = functools.partial(all_collectives, group, size, repeats)
                found = ranks.launch(group[0], main, no_data)
                lines.writelines(json.dumps(row) + "\n" for row in found)
                lines.flush()
                rows += found
                show(found)
    return rows


def show(rows: list[Row]) -> None:
    table([readable(row) for row in rows])


def all_collectives(
    configs: list[Config], parameters: int, repeats: int, config: Config, rank: Rank, data: None
) -> list[Row]:
    """On each rank: one row for each of the configs' algorithms."""
    torch.set_num_threads(1)
    return [one_collective(one, parameters, repeats, rank) for one in configs]


def one_collective(config: Config, parameters: int, repeats: int, rank: Rank) -> Row:
    """The messages of one step (of a period, their mean) on the wire, measured, modelled and at their bound; the step.

    `seconds` is the communication alone: the same messages, without the merges between them, as all ranks
    share this machine's cores. `step_s` has the algorithm's own work in it, crowded as it is.
    """
    k, algorithm = entries(config.density, parameters), algorithms.load(config.algo, 1)
    step: Callable[[], object] | None = None
    name, wire, period = config.algo.name, config.network, algorithms.period(algorithm)
    if hasattr(algorithm, "wrap"):
        schedule, step = ddp(algorithm, parameters, rank)
        hook = config.algo.options["hook"]
        name += "" if hook == "none" else f"_{hook}"
    else:
        schedule = rehearsal.schedule(config.algo, rank.size, parameters, k)
        if config.algo.sparse:
            step = sparse_step(config, k, rank)
    rounds = schedule[rank.rank]
    play = rehearsal.play(rounds, rank.collective.transport)
    warm = rehearsal.time_together(play, rank.control, 2)  # connections, windows, pages
    repeats = max(3, min(repeats, int(CASE_S / warm[1])))
    idle = _sent(rank, lambda: None, repeats)[1]
    taken, sent = _sent(rank, play, repeats)
    median, spread = _middle(taken)
    counted = repeats * sum(done.sent * done.repeat for done in rounds)
    modelled = network.seconds(schedule, wire.alpha_s, wire.beta_s_per_byte)
    bound = network.seconds(schedule, 0.0, 8 / wire.bits_per_s)
    counts = rank.control.gather_objects((counted, sent - idle))
    total, on_wire = (sum(column) for column in zip(*counts, strict=True))
    return {
        "algo": name, "nodes": rank.size, "parameters": parameters,
        "k": k if config.algo.sparse else None, "seconds": median / period, "spread": spread / period,
        "modelled": modelled / period, "bound": bound / period,
        "to_model": median / modelled, "to_bound": median / bound,
        "counted_to_wire": total / on_wire, "repeats": repeats,
        "step_s": statistics.median(rehearsal.time_together(step, rank.control, repeats)) if step else None,
        "network": wire.name,
    }  # fmt: skip


def _sent(rank: Rank, action: Callable[[], object], repeats: int) -> tuple[list[float], int]:
    """Seconds of each repeat, and what left this rank's interface meanwhile."""
    rank.control.barrier()
    before = lab.bytes_sent()
    taken = rehearsal.time_together(action, rank.control, repeats)
    return taken, lab.bytes_sent() - before


def sparse_step(config: Config, k: int, rank: Rank) -> Callable[[], object]:
    """The algorithm's own step on random values."""
    parameters = SURPLUS * k
    generator = torch.Generator().manual_seed(rank.rank)
    algorithm = algorithms.load(config.algo, parameters)
    algorithm.density = (k + 0.5) / parameters
    gradient = torch.randn(parameters, generator=generator)
    return lambda: algorithm.step(gradient.clone(), rank.collective)


class Linear(nn.Module):
    """A nearly square matrix whose gradient is what `forward` is given: DDP takes one from a backward pass alone."""

    def __init__(self, parameters: int):
        super().__init__()
        rows = math.isqrt(parameters)
        self.weight = nn.Parameter(torch.zeros(rows, parameters // rows))

    def forward(self, gradient: Tensor) -> Tensor:
        return (self.weight * gradient).sum()


def ddp(algorithm: Any, parameters: int, rank: Rank) -> tuple[list[list[network.Round]], Callable[[], object]]:
    """What DDP and its hook send for one matrix, on every rank, and its step: backward with all that they do in it."""
    model, collective = Linear(parameters), Collective(rank.collective.transport)
    wrapped = algorithm.wrap(model, collective)
    gradient = torch.randn(model.weight.shape, generator=torch.Generator().manual_seed(rank.rank))

    def step() -> None:
        wrapped(gradient).backward()

    for _ in range(3):  # PowerSGD's hook compresses from the third step on
        step()
    algorithm.step(gradient, collective)  # counts
    return rank.control.gather_objects([done for done in collective.traffic.rounds if done.sent]), step
