"""Simulates one algorithm on one cluster: its messages, what they take, and the iteration that follows."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from repro import algorithms
from repro.children import end_with_parent, usable_cores
from repro.comm import cost_formulas, replay
from repro.comm.bucket_spans import Shapes
from repro.comm.traffic import Link, Round, bytes_sent, framing
from repro.config.schema import Config
from repro.density import entries
from repro.iteration_time import IterationTime
from repro.tables import Row
from repro.timing import dry_run, execution_traces, node_profile, predict
from repro.timing.node_profile import Node, Timed

SHARED = 128  # nodes from which their rounds are recorded by all cores


def row(
    config: Config,
    parameters: int,
    node: Node,
    shapes: Shapes | None = None,
    trace: Path | None = None,
    ready: Sequence[float] = (),
) -> Row:
    """Simulates one algorithm on one cluster; `trace` begins the names of its execution traces.

    Efficiency is this throughput over that of nodes that never wait. What follows from a compress time that is not
    known is None. The iteration waits for messages in the background only where they take longer than the steps that
    they may. DDP's buckets wait for their layers, whose gradients are there at `ready`.
    """
    k = entries(config.density, parameters)
    link = Link(config.network.alpha_s, config.network.beta_s_per_byte)
    wraps, period = algorithms.of(config.algo).wraps, algorithms.period(config.algo)
    rounds = bucket_rounds(config, shapes or []) if wraps else all_rounds(config, parameters, k, shapes)
    if trace is not None:
        known = {"compute": node.compute_s, "compress": node.compress_s if config.nodes > 1 else 0.0}
        seconds = {part: each * period for part, each in known.items() if each}
        execution_traces.write(trace, rounds, seconds)
    communicate = replay.seconds(rounds, *link) / period
    compress, total = node.compress_s if config.nodes > 1 else 0.0, None
    if compress is not None and wraps:
        untrained = dataclasses.replace(config, clip_grad=0.0)  # which a run of DDP could not have
        time = predict.iteration(untrained, shapes or [], ready, compress).parts(*link)
        communicate, total = time.communicate_s, time.total
    elif compress is not None:
        covered = algorithms.delay(config.algo) * (node.compute_s + compress) / period  # by messages in the background
        total = IterationTime(node.compute_s, compress, communicate, min(communicate, covered)).total
    sent = list(map(bytes_sent, rounds))
    at_socket = [own + sum(map(framing, of_rank)) for own, of_rank in zip(sent, rounds, strict=True)]
    return {
        "model": config.model.name, "algo": config.algo.name,
        "wire": config.algo.wire if algorithms.of(config.algo).sends_pairs else None,
        "nodes": config.nodes, "parameters": parameters,
        "k": k if config.algo.sparse else None, "source": node.source, "samples": node.samples,
        "compute_s": node.compute_s,
        "compress_s": compress, "communicate_s": communicate,
        "closed_form_s": closed_form(config, parameters, k, link),
        "as_plotted_s": as_plotted(config, parameters, k, link), "iteration_s": total,
        "samples_per_s": None if total is None else node.samples / total,
        "efficiency": None if total is None else node.compute_s / total,
        "bytes_sent_most": max(sent) / period, "bytes_sent_mean": statistics.fmean(sent) / period,
        "socket_bytes_most": max(at_socket) / period,
        "rounds_most": max(sum(done.repeat for done in own) for own in rounds) / period,
    }  # fmt: skip


def moments(config: Config, node: Node, timed: Timed) -> Sequence[float]:
    """Returns when layers have their gradient, in seconds from an iteration's start, if that is when they are sent.

    `timed` keeps what was timed.
    """
    if not algorithms.of(config.algo).wraps:
        return ()
    batch = node.samples // node.accumulate  # that of the node's seconds
    config = dataclasses.replace(config, batch_per_node=batch, accumulate=node.accumulate)
    return node_profile.backward(f"{node.compute_s}", config, timed)


def bucket_rounds(config: Config, shapes: Shapes) -> list[list[Round]]:
    """Returns the rounds of every rank for all buckets of DDP, one after the other."""
    return dry_run.in_turn(dry_run.in_parts(config, config.nodes, shapes, algorithms.spans(config, shapes)))


def all_rounds(config: Config, parameters: int, k: int, shapes: Shapes | None = None) -> list[list[Round]]:
    size = config.nodes
    if size < SHARED or algorithms.of(config.algo).messages_depend_on_values:  # which runs all ranks in any case
        return dry_run.all_rounds(config.algo, size, parameters, k, shapes=shapes)
    parts = min(size, usable_cores())
    ranks = [range(part, size, parts) for part in range(parts)]
    with ProcessPoolExecutor(parts, multiprocessing.get_context("fork"), _begin, (os.getpid(),)) as pool:
        jobs = [pool.submit(dry_run.all_rounds, config.algo, size, parameters, k, part, shapes) for part in ranks]
        found = [job.result() for job in jobs]
    return [found[rank % parts][rank // parts] for rank in range(size)]


def _begin(parent: int) -> None:
    end_with_parent(parent)
    torch.set_num_threads(1)  # those before the fork are not in the child, which would wait for them for ever


def closed_form(config: Config, parameters: int, k: int, link: Link) -> float | None:
    """Returns the seconds of the paper's formula for this algorithm's messages, None where it has none."""
    size, algo = config.nodes, config.algo
    if algo.module in ("dense", "topk"):
        name = algo.module
    elif algo.module == "gtopk_from_topk":
        name = "topk"
    elif algo.module == "gtopk" and size & (size - 1) == 0:
        name = cost_formulas.ROUTES[algo.options["route"]]
    else:
        return None
    return cost_formulas.closed_form(name, size, parameters, k, link, algo.wire)


def as_plotted(config: Config, parameters: int, k: int, link: Link) -> float | None:
    """Returns the seconds that the authors' model figure plots, which is of 1 Gbps Ethernet.

    None for other networks, for the butterfly and for other wire formats.
    """
    algo = config.algo
    if algo.name not in ("dense", "topk", "gtopk") or algo.wire != "pairs" or algo.options.get("route") == "butterfly":
        return None
    if config.network.name != "ethernet1g":
        return None
    alpha = link.alpha_s if algo.name == "dense" else cost_formulas.PLOTTED_ALPHA_S
    return closed_form(config, parameters, k, Link(alpha, link.beta_s_per_byte))
