"""Simulates iteration time, throughput and scaling of any number of nodes, without training and without a network.

The messages come from the algorithms' own code (`dry_run`), their time from the cost model (`replay`), and compute and
compress from a stated profile.
"""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import re
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from repro import algorithms, screen
from repro.children import end_with_parent
from repro.comm import cost_formulas, replay
from repro.comm.bucket_spans import Shapes
from repro.comm.traffic import Link, Round, framing
from repro.config.differences import flat
from repro.config.schema import Config, ConfigError
from repro.density import entries
from repro.iteration_time import IterationTime
from repro.json_text import json_text
from repro.tables import Row
from repro.timing import dry_run, execution_traces, node_profile, predict, stand_ins
from repro.timing.node_profile import Node, Timed, layers, profile
from repro.train import ending
from repro.waiting import track
from repro.whole_files import write_whole

TELLING = ("algo.", "network", "batch_per_node", "accumulate", "precision", "data.", "model.")  # of a time
SHARED = 128  # nodes from which their rounds are recorded by all cores


def run(
    configs: Sequence[Config], node: str, sizes: Sequence[int] | None, out: Path | None, traces: Path | None = None
) -> list[Row]:
    """Returns one row per config and size; prints them, and where gTop-k overtakes Top-k. Raises ConfigError.

    `node` is paper, measured or seconds, as `profile` reads it; `sizes` replaces the model's number of parameters;
    `traces` is a folder for each row's execution traces.
    An algorithm whose compress time is not known has no iteration time: a line says what gives it one.
    """
    dry_run.check_whole(configs)
    for config in configs:
        stand_ins.check_ranks(config.algo, config.nodes)
    node_profile.check_unstated(configs, "node=")
    if (inside := [config for config in configs if algorithms.of(config.algo).wraps]) and (sizes or traces):
        raise ConfigError(
            f"algo={inside[0].algo.name}: it sends a bucket of layers while backward runs, and "
            + ("parameters= has no layers" if sizes else "a trace has messages after compute alone")
            + f"; leave {'parameters' if sizes else '--trace'} out, or type algo=dense"
        )
    if traces and (behind := [config for config in configs if algorithms.delay(config.algo)]):
        raise ConfigError(
            f"algo={behind[0].algo.name}: its messages travel in the background, and a trace has messages after "
            "compute alone; leave --trace out, or type algo=local_sgd"
        )
    node_profile.set_threads(configs[0])
    timed: Timed = {}
    found, count, labels = [], len(configs) * len(sizes or [0]), swept(configs)
    names = [trace_name(config, 0, labels) for config in configs]
    if traces is not None and (differ := ending.named_twice(configs, names)):
        raise ConfigError(
            f"--trace {traces}: files of rows that differ in {', '.join(differ)} alone have one name; "
            f"type one value of {', '.join(differ)}, and another --trace for the next"
        )
    for config in track(configs, f"simulating {screen.plural(count, 'case')}", len(configs)):
        shapes = None if sizes else layers(config)
        for parameters in sizes or [sum(map(math.prod, shapes or []))]:
            place = None if traces is None else traces / trace_name(config, parameters, labels)
            profiled = profile(node, config, parameters, shapes, timed)
            one = row(config, parameters, profiled, shapes, place, moments(config, profiled, timed))
            settings = flat(dataclasses.asdict(config))
            found.append(one | {key: settings.get(key) for key in labels})
    rows = [one | {key: ending.cell(one[key]) for key in labels} for one in found]  # as they are typed
    read = {config.data.metric.samples for config in configs}
    said, cells, keys = told(rows, configs[0].network.name, read.pop() if len(read) == 1 else "samples", labels)
    print(f"{screen.sentence(said)}\n\n{screen.table(cells, keys)}\n")
    if untimed := list(dict.fromkeys(str(one["algo"]) for one in rows if one["compress_s"] is None)):
        known = "published" if node == "paper" else "stated"
        print(screen.sentence(
            f"No iteration time for {', '.join(untimed)}: no seconds of compress are {known} for them. "
            + ("Their traces have messages after compute alone, without compress. " if traces is not None else "")
            + "Type node=measured to time compute and compress here, or state both as in node=0.14+0.09."
        ))  # fmt: skip
    apart = [key for key in labels if not key.startswith("algo.")]
    overtaken = crossovers(rows, apart)
    for line in overtaken:
        about = "".join(f", {key}={line[key]}" for key in apart)
        won = f"{line['algo']} communicates faster than topk {line['at']}"
        print(screen.sentence(f"{line['model']}, {line['parameters']:,} parameters{about}: {won}"))
    if out is not None:
        wire = configs[0].network
        network = {"name": wire.name, "alpha_s": wire.alpha_s, "beta_s_per_byte": wire.beta_s_per_byte}
        report = {
            "network": None if any(key.startswith("network") for key in labels) else network,  # None: it is in the rows
            "density": selected.pop() if len(selected := densities(configs)) == 1 else None,
            "crossover": overtaken,
            "rows": found,
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, json_text(report, indent=1) + "\n")
    return rows


def swept(configs: Sequence[Config]) -> list[str]:
    """Returns the keys, beside model, algorithm and nodes, in which cases differ: each has a column of its own."""
    of_models: dict[str, list[Config]] = {}
    for config in configs:
        of_models.setdefault(config.model.name, []).append(config)
    keys = dict.fromkeys(key for own in of_models.values() for key in ending.varied(own) if key.startswith(TELLING))
    return [*keys, *(["density"] if len(densities(configs)) > 1 else [])]


def densities(configs: Sequence[Config]) -> set[float]:
    return {config.density for config in configs if config.algo.sparse}


def told(rows: Sequence[Row], network: str, samples: str, labels: Sequence[str] = ()) -> tuple[str, list[Row], int]:
    """Returns what the rows have in common, the cells of a table of the rest, and how many say what a row is about.

    `labels` are keys of the rows that are columns too.
    """
    common = {name for name in ("model", "parameters") if len({one[name] for one in rows}) == 1}
    first = rows[0]
    said = [str(first["model"])] if "model" in common else []
    said += [f"{first['parameters']:,} parameters"] if "parameters" in common else []
    selected = {one["k"] for one in rows} - {None}
    said += [f"k = {selected.pop():,}"] if len(selected) == 1 else []
    batches = {one["samples"] for one in rows}
    said += [f"batch {first['samples']} per node"] if len(batches) == 1 else []
    batch = len(batches) > 1 and "batch_per_node" not in labels
    said += [] if "network" in labels else [f"network {network}"]
    said += [f"seconds of a node: {first['source']}"]
    keys = [name for name in ("model", "parameters", "algo", *labels, "nodes") if name not in common]
    table = [
        {
            **{name: str(one[name]) if name == "nodes" else one[name] for name in keys},
            "batch per node": one["samples"] if batch else None,
            **{f"{part} (ms)": screen.ms(one[f"{part}_s"]) for part in ("compute", "compress", "communicate")},
            "iteration (ms)": screen.ms(one["iteration_s"]),
            f"{samples}/s per node": one["samples_per_s"],
            "efficiency (%)": screen.percent(one["efficiency"]),
            "most sent": screen.Bytes(one["bytes_sent_most"]),
            "most rounds": int(one["rounds_most"]) if float(one["rounds_most"]).is_integer() else one["rounds_most"],
            "closed form (ms)": screen.ms(one["closed_form_s"]),
            "as plotted (ms)": screen.ms(one["as_plotted_s"]),
        }
        for one in rows
    ]
    return ", ".join(said), screen.filled(table), len(keys)


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
    sent = [sum(done.sent * done.repeat for done in own) for own in rounds]
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


def trace_name(config: Config, parameters: int, labels: Sequence[str]) -> str:
    """Returns how the names of one row's traces begin; values of the keys `labels` tell it from other rows."""
    settings = flat(dataclasses.asdict(config))
    wire = "" if config.algo.wire == "pairs" else f"-{config.algo.wire}"
    rest = [key for key in labels if key not in ("algo", "algo.wire") and settings.get(key) is not None]
    words = [f"-{key.rpartition('.')[2]}={ending.cell(settings[key])}" for key in rest]
    name = f"{config.model.name}-{parameters}-{config.algo.name}{wire}{''.join(words)}-n{config.nodes}"
    return re.sub(r"[^\w.=-]+", "_", name)


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
    parts = min(size, len(os.sched_getaffinity(0)))
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


def crossovers(rows: Sequence[Row], labels: Sequence[str] = ()) -> list[Row]:
    """Finds of the simulated numbers of nodes the one from which each gTop-k communicates in less time than Top-k.

    Between them it may not: its rounds are those of the next power of 2. Rows that differ in one of the keys `labels`
    are not compared.
    """
    found = []
    names = ("model", "parameters", "wire", *labels)
    for case in dict.fromkeys(tuple(one[name] for name in names) for one in rows if one["wire"]):
        model, parameters, wire, *settings = case
        times = {
            (one["algo"], one["nodes"]): one["communicate_s"]
            for one in rows
            if tuple(one[name] for name in names) == case
        }
        for algo in ("gtopk", "gtopk_butterfly"):
            both = sorted(nodes for name, nodes in times if name == algo and nodes > 1 and ("topk", nodes) in times)
            loses = [nodes for nodes in both if times[algo, nodes] >= times["topk", nodes]]
            wins = [nodes for nodes in both if nodes > max(loses, default=0)]
            if both:
                at = "" if wire == "pairs" else f"in {wire} "
                at += (
                    f"from {wins[0]} nodes on, of these numbers" if wins else f"at none of these up to {both[-1]} nodes"
                )
                found.append({
                    "model": model, "parameters": parameters, "algo": algo, "at": at,
                    "loses_up_to": max(loses, default=None), "wins_from": wins[0] if wins else None,
                    **dict(zip(labels, settings, strict=True)),
                })  # fmt: skip
    return found
