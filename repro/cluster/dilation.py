"""Finds the least dilation of time at which this machine carries the links of P nodes: cluster.dilation=auto.

All links are loaded in both directions at once, by small messages, whose time is latency, and by large ones. What this
machine adds to their stated seconds must be little: to both, or, where iterations of stated compute are measured, to
what their messages take, of which it is known how much is latency. Dense on 32 nodes hardly waits for latency, and
would take hours at the dilation that gTop-k needs there. What was measured is kept in the folder of the runs, as runs
of one sweep ask for the same.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from repro import algorithms, models
from repro.children import usable_cores
from repro.cluster.lab import LEAST_BITS_PER_S, MOST_BITS_PER_S
from repro.comm.bucket_spans import Shapes
from repro.comm.collective import distances
from repro.comm.common_start import Stopped, from_common_start
from repro.comm.sockets import Pace
from repro.config.parts import DILATIONS, Network
from repro.config.schema import Config, RunError
from repro.json_text import json_text
from repro.whole_files import write_whole

FILE = "dilation.json"
# Bytes of a message. Dense sends 2 to 8 MB at a time, and a rank woken late costs it little; a large message has more
# where LATENCIES asks for more.
SMALL, LARGE = 2048, 1 << 21
LATENCIES = 4  # that the bytes of a large message take at least: else what latency absorbs would hide slow cores
MOST = 1.05  # times the stated seconds
REPEATS = 5

Launch = Callable[[Config, Callable[..., Any]], Any]


def resolve(config: Config, launch: Launch) -> float:
    """Returns the dilation that `config` states, or the one found. Raises RunError where none is enough."""
    if config.cluster.dilation != "auto":
        return float(config.cluster.dilation)
    possible = allowed(config.network)
    if config.nodes == 1 and possible:
        return float(possible[0])  # no link carries anything
    file = Path(config.results) / FILE
    tried, share = kept(file).get(place(config), {}), latency_share(config)
    for dilation in possible:
        if str(dilation) not in tried:
            tried[str(dilation)] = measured(config, dilation, launch)
            file.parent.mkdir(parents=True, exist_ok=True)
            now = kept(file)  # another run may have written since
            now.setdefault(place(config), {}).update(tried)
            write_whole(file, json_text(now, indent=1) + "\n")
        if enough(tried[str(dilation)], share):
            return float(dilation)
    if place(config) in (now := kept(file)):  # so that another time tries again
        del now[place(config)]
        write_whole(file, json_text(now, indent=1) + "\n")
    raise RunError(
        f"cluster.dilation=auto: this machine does not carry the links of {config.nodes} nodes at any dilation that "
        f"they can have: at most {DILATIONS[-1]} and no less than {LEAST_BITS_PER_S:g} bit/s. Type fewer nodes, or try "
        "again when the machine has less else to do"
    )


def expected(config: Config, shapes: Shapes) -> float:
    """Returns the dilation that `config` states, or the least that was not found too little; tries none.

    `shapes` are those of the network's layers.
    """
    if config.cluster.dilation != "auto":
        return float(config.cluster.dilation)
    possible = allowed(config.network)
    if config.nodes == 1 or not possible:
        return float([*possible, DILATIONS[-1]][0])  # as `resolve`; no messages have no share of latency
    tried, share = kept(Path(config.results) / FILE).get(place(config), {}), latency_share(config, shapes)
    least = (one for one in possible if str(one) not in tried or enough(tried[str(one)], share))
    return float(next(least, possible[-1]))


def allowed(wire: Network) -> list[int]:
    """Returns the dilations at which the lab can shape the links of this network."""
    return [one for one in DILATIONS[1:] if LEAST_BITS_PER_S <= wire.bits_per_s / one <= MOST_BITS_PER_S]


def place(config: Config) -> str:
    """Names this machine and the network that it is to carry."""
    cores, wire = usable_cores(), config.network
    return f"{platform.node()}, {cores} cores, {config.nodes} nodes, {wire.bits_per_s:g} bit/s, {wire.alpha_s:g} s"


def measured(config: Config, dilation: int, launch: Launch) -> dict[str, float]:
    """Tries one dilation, and says how it went; returns measured over stated seconds by the size of a message.

    Raises Stopped where any rank was told to stop.
    """
    cluster = dataclasses.replace(config.cluster, dilation=dilation)
    found = launch(dataclasses.replace(config, cluster=cluster), trial)
    if found is None:
        raise Stopped
    text = f"{found[SMALL]:.2f} and {found[LARGE]:.2f} times what small and large messages should take"
    print(f"cluster.dilation=auto, {config.nodes} nodes: at {dilation} {text}", file=sys.stderr, flush=True)
    return {str(size): round(ratio, 3) for size, ratio in found.items()}


def latency_share(config: Config, shapes: Shapes | None = None) -> float | None:
    """Returns which part of the seconds of a run's messages is latency; None if that is not known beforehand."""
    if config.node is None or config.stages > 1:  # messages of a benchmark, of training, or of a pipeline
        return None
    if shapes is None:
        shapes = [one.shape for one in models.sized_only(config).parameters()]
    cost = algorithms.step_path(config, shapes)
    latency_s, bytes_s = cost.rounds * config.network.alpha_s, cost.bytes * config.network.beta_s_per_byte
    return latency_s / (latency_s + bytes_s) if latency_s + bytes_s else None


def enough(found: dict[str, float], share: float | None) -> bool:
    small, large = (found[str(size)] for size in (SMALL, LARGE))
    return (max(small, large) if share is None else share * small + (1 - share) * large) <= MOST


def kept(file: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Returns what was measured before, by place and dilation; nothing of what is missing or damaged."""
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    places = known.items() if isinstance(known, dict) else ()
    return {place: tried for place, tried in places if isinstance(tried, dict) and all(map(_whole, tried.values()))}


def _whole(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(found.get(str(size)), int | float) for size in (SMALL, LARGE))


def trial(config: Config, rank: Any, data: None) -> dict[int, float] | None:
    """Runs on each rank (a `ranks.Rank`); returns measured over stated seconds of each size of message.

    None, on all ranks, where any was told to stop.
    """
    pace = Pace(rank.dilation * config.network.alpha_s, config.network.bits_per_s / rank.dilation)
    found = {}
    for size in (SMALL, LARGE):
        count = size if size == SMALL else large(config.network)
        out, into = torch.zeros(2, count, dtype=torch.uint8)
        steps = list(distances(rank.size))

        def exchange(out: torch.Tensor = out, into: torch.Tensor = into, steps: list[int] = steps) -> None:
            for step in steps:
                to, source = (rank.number + step) % rank.size, (rank.number - step) % rank.size
                rank.collective.transport.exchange(out, to, into, source)

        try:
            times = from_common_start(exchange, rank, 1 + REPEATS)[1:]
        except Stopped:
            return None
        stated = len(steps) * (pace.latency_s + 1e-9 * pace.line_ns(count))
        found[size] = statistics.median(times) / stated
    return found


def large(wire: Network) -> int:
    """Returns the bytes of a large message on this network."""
    return max(LARGE, int(LATENCIES * wire.alpha_s * wire.bits_per_s / 8))
