"""Simulates iteration time, throughput and scaling of any number of nodes, without training and without a network.

The messages come from the algorithms' own code (`dry_run`), their time from the cost model (`replay`), and compute and
compress from a stated profile.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path

from repro import algorithms, screen
from repro.config.differences import flat
from repro.config.schema import Config, ConfigError
from repro.json_text import json_text
from repro.tables import Row
from repro.timing import dry_run, node_profile, simulated_row, stand_ins
from repro.timing.node_profile import Timed, layers, profile
from repro.train import ending
from repro.waiting import track
from repro.whole_files import write_whole

TELLING = ("algo.", "network", "device", "batch_per_node", "accumulate", "precision", "data.", "model.")  # of a time


def run(
    configs: Sequence[Config], node: str, sizes: Sequence[int] | None, out: Path | None, traces: Path | None = None
) -> list[Row]:
    """Returns one row per config and size; prints them, and where gTop-k overtakes Top-k. Raises ConfigError.

    `node` is paper, measured or seconds, as `profile` reads it; `sizes` replaces the model's number of parameters;
    `traces` is a folder for each row's execution traces.
    An algorithm whose compress time is not known has no iteration time: a line says what gives it one.
    """
    labels = swept(configs)
    check(configs, sizes, traces, labels)
    node_profile.set_threads(configs[0])
    timed: Timed = {}
    found, count = [], len(configs) * len(sizes or [0])
    for config in track(configs, f"simulating {screen.plural(count, 'case')}", len(configs)):
        shapes = None if sizes else layers(config)
        for parameters in sizes or [sum(map(math.prod, shapes or []))]:
            place = None if traces is None else traces / trace_name(config, parameters, labels)
            profiled = profile(node, config, parameters, shapes, timed)
            ready = simulated_row.moments(config, profiled, timed)
            one = simulated_row.row(config, parameters, profiled, shapes, place, ready)
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


def check(configs: Sequence[Config], sizes: Sequence[int] | None, traces: Path | None, labels: Sequence[str]) -> None:
    """Raises ConfigError for what cannot be simulated, and for traces that would be written over one another."""
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
    if traces is None:
        return
    if behind := [config for config in configs if algorithms.delay(config.algo)]:
        raise ConfigError(
            f"algo={behind[0].algo.name}: its messages travel in the background, and a trace has messages after "
            "compute alone; leave --trace out, or type algo=local_sgd"
        )
    if differ := ending.named_twice(configs, [trace_name(config, 0, labels) for config in configs]):
        raise ConfigError(
            f"--trace {traces}: files of rows that differ in {', '.join(differ)} alone have one name; "
            f"type one value of {', '.join(differ)}, and another --trace for the next"
        )


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


def trace_name(config: Config, parameters: int, labels: Sequence[str]) -> str:
    """Returns how the names of one row's traces begin; values of the keys `labels` tell it from other rows."""
    settings = flat(dataclasses.asdict(config))
    wire = "" if config.algo.wire == "pairs" else f"-{config.algo.wire}"
    rest = [key for key in labels if key not in ("algo", "algo.wire") and settings.get(key) is not None]
    words = [f"-{key.rpartition('.')[2]}={ending.cell(settings[key])}" for key in rest]
    name = f"{config.model.name}-{parameters}-{config.algo.name}{wire}{''.join(words)}-n{config.nodes}"
    return re.sub(r"[^\w.=-]+", "_", name)


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
