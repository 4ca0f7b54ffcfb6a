"""Finds the least dilation of time at which this machine carries the links of P nodes: cluster.dilation=auto.

All links are loaded in both directions at once, by small messages, whose time is latency, and by large ones. What this
machine adds to their stated seconds must be little. The answer is kept in the folder of the runs, as runs of one sweep
ask for the same.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from repro.comm.collective import distances
from repro.comm.common_start import from_common_start
from repro.comm.sockets import Pace
from repro.config.schema import DILATIONS, Config, Network, RunError
from repro.json_text import json_text
from repro.whole_files import write_whole

FILE = "dilation.json"
SMALL, LARGE = 2048, 1 << 18  # bytes of a message; a large one has more where LATENCIES asks for more
LATENCIES = 4  # that the bytes of a large message take at least: else what latency absorbs would hide slow cores
MOST = {SMALL: 1.05, LARGE: 1.05}  # times its stated seconds
REPEATS = 5

Launch = Callable[[Config, Callable[..., Any]], Any]


def resolve(config: Config, launch: Launch) -> float:
    """Returns the dilation that `config` states, or the one found. Raises RunError where none is enough."""
    if config.cluster.dilation != "auto":
        return float(config.cluster.dilation)
    if config.nodes == 1:
        return float(DILATIONS[1])  # no link carries anything
    file, wire = Path(config.results) / FILE, config.network
    cores = len(os.sched_getaffinity(0))
    key = f"{platform.node()}, {cores} cores, {config.nodes} nodes, {wire.bits_per_s:g} bit/s, {wire.alpha_s:g} s"
    known = kept(file)
    if key not in known:
        known[key] = find(config, launch)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json_text(known, indent=1) + "\n")
    return float(known[key]["dilation"])


def kept(file: Path) -> dict[str, dict[str, Any]]:
    """Returns what was found before; nothing where the file is missing or damaged, as it can be found again."""
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    entries = known.items() if isinstance(known, dict) else ()
    return {key: one for key, one in entries if isinstance(one, dict) and one.get("dilation") in DILATIONS}


def find(config: Config, launch: Launch) -> dict[str, Any]:
    """Tries one dilation after the other, the least first; returns the one that is enough, and what was measured."""
    tried = {}
    for dilation in DILATIONS[1:]:
        cluster = dataclasses.replace(config.cluster, dilation=dilation)
        found = launch(dataclasses.replace(config, cluster=cluster), trial)
        tried[dilation] = {str(size): round(ratio, 3) for size, ratio in found.items()}
        text = f"{found[SMALL]:.2f} and {found[LARGE]:.2f} times what small and large messages should take"
        print(f"cluster.dilation=auto, {config.nodes} nodes: at {dilation} {text}", file=sys.stderr, flush=True)
        if all(found[size] <= most for size, most in MOST.items()):
            return {"dilation": dilation, "tried": tried}
    raise RunError(
        f"cluster.dilation=auto: this machine does not carry the links of {config.nodes} nodes even at a dilation of "
        f"{DILATIONS[-1]}. Type fewer nodes, or try again when the machine has less else to do"
    )


def trial(config: Config, rank: Any, data: None) -> dict[int, float]:
    """Runs on each rank (a `ranks.Rank`); returns measured over stated seconds of each size of message."""
    pace = Pace(rank.dilation * config.network.alpha_s, config.network.bits_per_s / rank.dilation)
    found = {}
    for size in MOST:
        count = size if size == SMALL else large(config.network)
        out, into = torch.zeros(2, count, dtype=torch.uint8)
        steps = list(distances(rank.size))

        def exchange(out: torch.Tensor = out, into: torch.Tensor = into, steps: list[int] = steps) -> None:
            for step in steps:
                to, source = (rank.number + step) % rank.size, (rank.number - step) % rank.size
                rank.collective.transport.exchange(out, to, into, source)

        times = from_common_start(exchange, rank.control, 1 + REPEATS)[1:]
        stated = len(steps) * (pace.latency_s + 1e-9 * pace.line_ns(count))
        found[size] = statistics.median(times) / stated
    return found


def large(wire: Network) -> int:
    """Returns the bytes of a large message on this network."""
    return max(LARGE, int(LATENCIES * wire.alpha_s * wire.bits_per_s / 8))
