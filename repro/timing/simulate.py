"""Iteration time, throughput and scaling of any number of nodes, without training and without a network.

The messages are those of the algorithms' own code (`rehearsal`), their time that of the cost model
(`network`), and compute and compress come from a stated profile.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from repro import algorithms, network, rehearsal
from repro.buckets import Shapes
from repro.config import Config
from repro.network import Link, Round
from repro.profiles import Node, layers, profile
from repro.schedule import entries
from repro.sweep import table
from repro.tables import Row, readable

SHARED = 128  # nodes from which their schedules are recorded by all cores
PLOTTED_ALPHA_S = 1e-3  # the authors' model figure counts log2 P ms of start-up in its sparse curves


def run(configs: Sequence[Config], node: str, sizes: Sequence[int] | None, out: Path | None) -> list[Row]:
    """One row per config and size; prints the table and where gTop-k overtakes Top-k. Raises ConfigError.

    `node` is paper, measured or seconds, as `profile` reads it; `sizes` replaces the model's number of
    parameters.
    """
    rows = []
    for config in configs:
        shapes = None if sizes else layers(config)
        for parameters in sizes or [sum(map(math.prod, shapes or []))]:
            rows.append(row(config, parameters, profile(node, config, parameters, shapes), shapes))
    table([readable(one) for one in rows])
    found = crossovers(rows)
    for line in found:
        print(f"{line['model']}, {line['parameters']:,} parameters: {line['algo']} beats topk {line['at']}")
    if out is not None:
        wire = configs[0].network
        report = {
            "network": {"name": wire.name, "alpha_s": wire.alpha_s, "beta_s_per_byte": wire.beta_s_per_byte},
            "density": configs[0].density if configs[0].algo.sparse else None,
            "crossover": found,
            "rows": rows,
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(report, indent=1) + "\n")
    return rows


def row(config: Config, parameters: int, node: Node, shapes: Shapes | None = None) -> Row:
    """One algorithm on one cluster. Efficiency: this throughput over that of nodes that never wait."""
    k = entries(config.density, parameters)
    link = Link(config.network.alpha_s, config.network.beta_s_per_byte)
    rounds = schedule(config, parameters, k, shapes)
    period = algorithms.period(algorithms.load(config.algo, 1))
    communicate = network.seconds(rounds, *link) / period
    own = config.algo.sparse or node.source == "measured"  # what is published or stated is a sparse algorithm's
    compress = node.compress_s if own and config.nodes > 1 else 0.0
    iteration = node.compute_s + compress + communicate
    sent = [sum(done.sent * done.repeat for done in own) for own in rounds]
    return {
        "model": config.model.name, "algo": config.algo.name, "nodes": config.nodes, "parameters": parameters,
        "k": k if config.algo.sparse else None, "source": node.source, "compute_s": node.compute_s,
        "compress_s": compress, "communicate_s": communicate,
        "closed_form_s": closed_form(config, parameters, k, link),
        "as_plotted_s": as_plotted(config, parameters, k, link), "iteration_s": iteration,
        "samples_per_s": node.samples / iteration, "efficiency": node.compute_s / iteration,
        "bytes_sent_most": max(sent) / period,
        "rounds_most": max(sum(done.repeat for done in own) for own in rounds) / period,
    }  # fmt: skip


def schedule(config: Config, parameters: int, k: int, shapes: Shapes | None = None) -> list[list[Round]]:
    size = config.nodes
    if size < SHARED:
        return rehearsal.schedule(config.algo, size, parameters, k, shapes=shapes)
    parts = len(os.sched_getaffinity(0))
    ranks = [range(part, size, parts) for part in range(parts)]
    # One thread each: those that torch had before the fork are not in the child, which would wait for them for ever.
    with ProcessPoolExecutor(parts, multiprocessing.get_context("fork"), torch.set_num_threads, (1,)) as pool:
        jobs = [pool.submit(rehearsal.schedule, config.algo, size, parameters, k, part, shapes) for part in ranks]
        found = [job.result() for job in jobs]
    return [found[rank % parts][rank // parts] for rank in range(size)]


def closed_form(config: Config, parameters: int, k: int, link: Link) -> float | None:
    """The paper's formula for this algorithm's messages, None where it has none."""
    size, algo = config.nodes, config.algo
    if algo.module == "dense":
        return network.dense_ring(size, parameters, link)
    if algo.module in ("topk", "gtopk_from_topk"):
        return network.topk_allgather(size, k, link)
    if algo.module == "gtopk" and size & (size - 1) == 0:
        route = {"tree": network.gtopk_tree_and_broadcast, "butterfly": network.gtopk_butterfly}
        return route[algo.options["route"]](size, k, link)
    return None


def as_plotted(config: Config, parameters: int, k: int, link: Link) -> float | None:
    """The curve of the authors' model figure; it has none for the butterfly."""
    if config.algo.name not in ("dense", "topk", "gtopk"):
        return None
    alpha = link.alpha_s if config.algo.name == "dense" else PLOTTED_ALPHA_S
    return closed_form(config, parameters, k, Link(alpha, link.beta_s_per_byte))


def crossovers(rows: Sequence[Row]) -> list[Row]:
    """From how many of the simulated nodes on each gTop-k takes less time to communicate than Top-k."""
    found = []
    shapes = dict.fromkeys((one["model"], one["parameters"]) for one in rows)
    for model, parameters in shapes:
        times = {
            (one["algo"], one["nodes"]): one["communicate_s"]
            for one in rows
            if (one["model"], one["parameters"]) == (model, parameters)
        }
        for algo in ("gtopk", "gtopk_butterfly"):
            both = sorted(nodes for name, nodes in times if name == algo and ("topk", nodes) in times)
            loses = [nodes for nodes in both if times[algo, nodes] >= times["topk", nodes]]
            wins = [nodes for nodes in both if nodes > max(loses, default=0)]
            if both:
                at = f"from {wins[0]} nodes on" if wins else f"at none of these up to {both[-1]} nodes"
                found.append({
                    "model": model, "parameters": parameters, "algo": algo, "at": at,
                    "loses_up_to": max(loses, default=None), "wins_from": wins[0] if wins else None,
                })  # fmt: skip
    return found
