"""Measures one-way times between two nodes, and fits alpha and beta to them."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from repro import screen
from repro.clock import Stopwatch
from repro.cluster import lab, ranks
from repro.cluster.ranks import Rank
from repro.comm import link_fit
from repro.comm.collective import Transport
from repro.config.schema import Config, ConfigError
from repro.json_text import json_text
from repro.tables import Row
from repro.timing import node_profile
from repro.whole_files import write_whole

SIZES = [4**power for power in range(3, 13)]  # bytes, 64 B to 16 MB
PAIRS_S = 1.5  # seconds of ping-pong at each size
PAPER = "the paper's fit of 1 GbE: alpha 0.436 ms, beta 9 ns per byte"
TWO_MACHINES = "srun --nodes=2 --ntasks-per-node=1 python -m repro bench network"
ONE_WAY = {"one way": "seconds", "spread": "spread_s", "fit": "fit_s"}  # columns, and the keys of their rows


def measure_network(config: Config, out: Path, say: Callable[[str], None]) -> None:
    """Plays ping-pong between two ranks; writes out/network.json and network.yaml. Raises ConfigError, RunError.

    The line rate of what is not the lab is not known.
    """
    if config.nodes != 2 or config.cluster.name == "local":
        raise ConfigError("repro bench network takes two processes: nodes=2 and cluster=lab, or torchrun.")
    node_profile.check_nothing_stated([config])
    node_profile.check_unstated([config], "not needed")
    found = ranks.launch(config, _of_rank_0, ranks.no_data)
    if found is None:  # another rank of torchrun or srun
        return
    points, machines = found
    in_lab = config.cluster.name == "lab"
    bits_per_s = config.network.bits_per_s if in_lab else 0.0
    # A full token bucket lets its bytes pass at once, which no line can follow. Sizes are left out from a sixteenth of
    # them, whose seconds on the link would be less than the latency, to eight times as many, of which they are little.
    # Where messages are held, it lets nothing through earlier.
    credit = lab.burst(bits_per_s) if in_lab and not config.cluster.held else 0
    points = [{**point, "fitted": not credit < 16 * point["bytes"] < 128 * credit} for point in points]
    fitted = [point for point in points if point["fitted"]]
    line = link_fit.fit([p["bytes"] for p in fitted], [p["seconds"] for p in fitted])
    out.mkdir(parents=True, exist_ok=True)
    slowed = f" cluster.dilation={config.cluster.dilation}" if config.cluster.dilation != 1 else ""
    source = f"repro bench network cluster={config.cluster.name}"
    source += f" network={config.network.name}{slowed}" if in_lab else ""
    name = f"lab_{config.network.name}" if in_lab else "measured"
    write_whole(out / "network.yaml", link_fit.to_yaml(line, name, bits_per_s, source))
    report = {"command": source, **asdict(line), "bits_per_s": bits_per_s, "points": points}
    write_whole(out / "network.json", json_text(report, indent=1) + "\n")
    screen.show(one_way([{**p, "fit_s": line.alpha_s + line.beta_s_per_byte * p["bytes"]} for p in points]))
    say(
        f"alpha {1e3 * line.alpha_s:.4f} +- {1e3 * line.alpha_error:.4f} ms, "
        f"beta {1e9 * line.beta_s_per_byte:.3f} +- {1e9 * line.beta_error:.3f} ns per byte "
        f"(largest misfit {line.misfit:.0%}); {PAPER}"
    )
    drawn = in_lab and out == Path("results/lab")  # where the figure reads it
    draw = "   draw it: repro plot figures --only point_to_point" if drawn else ""
    say(f"use it: network={out / 'network.yaml'}{draw}")
    if not in_lab and machines == 1:
        say(f"both ranks were on one machine, so this is not of a network; one rank on each of two: {TWO_MACHINES}")


def _of_rank_0(config: Config, rank: Rank, data: None) -> tuple[list[Row], int] | None:
    """Returns on rank 0 what `ping_pong` does, and on how many machines the ranks are."""
    points = ping_pong(config, rank, data)
    return (points, len(set(rank.machines))) if rank.number == 0 else None


def ping_pong(config: Config, rank: Rank, data: None) -> list[Row]:
    """Returns median and spread (half the interquartile range) of half a round trip, for each message size."""
    transport, points = rank.collective.transport, []
    for size in SIZES:
        buffer = torch.zeros(size, dtype=torch.uint8, device=rank.device)
        trip = functools.partial(_send_and_back if rank.number == 0 else _back_and_send, transport, buffer)
        repeats = _agree(rank, trip)
        halves = [_seconds(trip) / 2 / rank.dilation for _ in range(repeats)]
        median, spread = middle(halves)
        points.append({"bytes": size, "seconds": median, "spread_s": spread, "repeats": repeats})
    return points


def _send_and_back(transport: Transport, buffer: torch.Tensor) -> None:
    transport.send(buffer, 1)
    transport.recv(buffer, 1)


def _back_and_send(transport: Transport, buffer: torch.Tensor) -> None:
    transport.recv(buffer, 0)
    transport.send(buffer, 0)


def _agree(rank: Rank, trip: Callable[[], None]) -> int:
    """Returns how many trips fill PAIRS_S, by the slowest of three after a warm-up, on rank 0's clock."""
    trip()
    seconds = [_seconds(trip) for _ in range(3)]
    wanted = min(200, max(7 if rank.dilation == 1 else 3, int(PAIRS_S / max(seconds))))
    return int(rank.control.gather_objects(wanted)[0])


def _seconds(action: Callable[[], object]) -> float:
    timer = Stopwatch()  # waits for the GPU: NCCL returns before a message is there
    with timer("trip"):
        action()
    return timer["trip"]


def middle(values: Sequence[float]) -> tuple[float, float]:
    low, median, high = statistics.quantiles(values, n=4)
    return median, (high - low) / 2


def one_way(rows: Sequence[Row]) -> list[Row]:
    """Returns the cells of the table of messages."""
    return [
        {
            "message": screen.Bytes(row["bytes"]),
            **{f"{name} (ms)": screen.ms(row[key]) for name, key in ONE_WAY.items()},
            "repeats": row["repeats"],
            "fitted": row["fitted"],
        }
        for row in rows
    ]
