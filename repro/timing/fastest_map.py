"""Predicts which algorithm has the shortest iteration, over bandwidth and latency; nothing is trained.

The shortest iteration is worth nothing to an algorithm that does not learn as well. So one is on a map only where it
applies the mean gradient, or where it ended at most a point below dense in committed runs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from repro import screen
from repro.config.compose import named_network
from repro.config.groups import group_options
from repro.config.schema import Config, ConfigError
from repro.iteration_time import TIE
from repro.json_text import json_text
from repro.report import map_lines, same_machine, summaries
from repro.report.from_run_folders import MACHINE
from repro.report.group import rounded
from repro.report.verdicts import MARGIN
from repro.runs import places, provenance
from repro.timing import contenders, kept_times, node_profile, predict
from repro.timing.predict import RELAXES, Iteration, iteration, label, relaxes
from repro.train import ending
from repro.waiting import counting
from repro.whole_files import write_whole

OUT = Path("results/summaries/tradeoff.json")
COMPRESSED_AT = 32  # nodes whose messages are there when compress is timed: those of the figure
OVER = ("over_second", "over_dense", "over_exact", "over_before")
MAPS = RELAXES[1:]  # the algorithms among which a map names the fastest


def run(sweep: Sequence[Config], say: Callable[[str], None], out: Path) -> None:
    """Predicts every config's iteration on its grid of networks and writes `out`; results that it already has stay.

    A sparse algorithm in buckets makes another selection, so it does not compete. Raises ConfigError.
    """
    if not sweep[0].tradeoff.bits_per_s:
        raise ConfigError(f"experiment={sweep[0].experiment} has no grid of networks; type experiment=tradeoff")
    node_profile.check_unstated(sweep, "tradeoff.node=")
    for config in sweep:
        predict.check(config)
        if config.nodes == 1:
            raise ConfigError("nodes=1: one node sends nothing, so there is nothing to compare; type nodes=4")
    if any(config.device == "cuda" for config in sweep):
        raise ConfigError("device=cuda: a map is timed on the processor, as its file says; leave device out")
    sweep = [dataclasses.replace(config, device="cpu") for config in sweep]
    configs = [config for config in sweep if config.overlap == "off" or not config.algo.sparse]
    if "dense" not in map(label, configs):
        raise ConfigError("a map compares with dense; type algo=dense,... too")
    density = contenders.density_of(configs)
    names = [(config.model.name, config.nodes, contenders.contender(config, density)) for config in configs]
    if keys := ending.named_twice(configs, names):
        raise ConfigError(
            f"{', '.join(keys)}: contenders that differ in nothing else have one name on a map; "
            f"type one value of {', '.join(keys)}, and name another file with --out for another"
        )
    node_profile.set_threads(configs[0])
    places.check_file(out)
    summary = begun(configs, out)
    wires = [(network["alpha_s"], network["beta_s_per_byte"]) for network in summary["networks"]]
    for text, sizes in _left_out(summary).items():
        say(screen.sentence(f"Left out of the maps of {', '.join(sizes)} nodes: {text}"))
    pairs = list(dict.fromkeys((config.model.name, config.nodes) for config in configs))
    known = [(row["model"], row["nodes"]) for row in summary["rows"]]
    left = [pair for pair in pairs if pair not in known]
    say(f"{screen.plural(len(pairs), 'pair')} of model and nodes, {len(left)} of them to predict")
    todo = sum((config.model.name, config.nodes) in left for config in configs)
    with counting(f"predicting {screen.plural(todo, 'iteration')}", todo) if todo else nullcontext() as advance:
        _predict(configs, left, summary, wires, say, advance, out)
    if not left:
        save(summary, out)  # its accuracies may be others although every map stays
    say(f"{out}: {screen.plural(len(summary['maps']), 'map')}")
    drawn = any(one["nodes"] == COMPRESSED_AT for one in summary["maps"])
    also = "Draw them: repro plot figures --only tradeoff" if drawn else f"The figure is of {COMPRESSED_AT} nodes alone"
    undrawn = summaries.unread_file(out, OUT.name)
    for line in map_lines.lines(summary) if undrawn else []:
        say(screen.sentence(line))
    say(undrawn or also)


def _predict(
    configs: Sequence[Config],
    pairs: Sequence[tuple[str, int]],
    summary: dict[str, Any],
    wires: Sequence[tuple[float, float]],
    say: Callable[[str], None],
    advance: Callable[[], None] | None,
    out: Path,
) -> None:
    """Adds the rows and the maps of these pairs of model and nodes to the summary, and saves it after each."""
    for model, nodes in pairs:
        own = [config for config in configs if config.model.name == model]
        profile = profiled(summary, own, out)
        found = predicted([one for one in own if one.nodes == nodes], profile, advance, summary["density"])
        seconds = {name: [one.seconds(*wire) for wire in wires] for name, one in found.items()}
        summary["rows"].append({"model": model, "nodes": nodes, "seconds": seconds})
        given_up = dict(zip(summary["contenders"], summary["relaxes"], strict=True))
        exact = [name for name in found if given_up[name] == "exact"]
        for most in MAPS:
            allowed = [name for name in _shown(summary, nodes) if RELAXES.index(given_up[name]) <= RELAXES.index(most)]
            among = {name: one for name, one in found.items() if name in allowed}
            cells = fastest(among, exact, summary["bits_per_s"], summary["alpha_s"], summary["contenders"])
            summary["maps"].append({"model": model, "nodes": nodes, "relax": most, **cells})
        save(summary, out)
        say(f"{model}, {screen.plural(nodes, 'node')}: {screen.plural(len(found), 'candidate')}")


def _shown(summary: dict[str, Any], nodes: int) -> list[str]:
    return [name for name, on in zip(summary["contenders"], summary["on_map"][str(nodes)], strict=True) if on]


def _left_out(summary: dict[str, Any]) -> dict[str, list[str]]:
    """Says who is on no map and why, and of which numbers of nodes."""
    found: dict[str, list[str]] = {}
    for nodes, below in summary["below_dense"].items():
        points = dict(zip(summary["contenders"], below, strict=True))
        off = [name for name in points if name not in _shown(summary, int(nodes))]
        worse = ", ".join(name for name in off if points[name] is not None)
        untrained = ", ".join(name for name in off if points[name] is None)
        reasons = [f"committed runs end more than {MARGIN:g} point below dense ({worse})"] * bool(worse)
        reasons += [f"there is no run long enough on as many ({untrained})"] * bool(untrained)
        if reasons:
            found.setdefault(" or ".join(reasons), []).append(nodes)
    return found


def begun(configs: Sequence[Config], out: Path) -> dict[str, Any]:
    """Returns the summary so far with the networks that its rows are of, or an empty one where it has no rows.

    Where only the accuracies are others, what was timed stays and the maps are made again. Raises ConfigError where it
    has rows that would be lost.
    """
    before = kept_times.read(out, "repro map", ("contenders", "models", "rows", "maps"))
    density, machine = contenders.density_of(configs), provenance.describe("cpu", "random images")
    named = {contenders.contender(config, density): config for config in configs}
    algos = [config.algo for config in named.values()]
    networks = [named_network(name) for name in group_options("network")]
    settings = rounded({
        "node": str(configs[0].tradeoff.node), "threads": torch.get_num_threads(), "compress_nodes": COMPRESSED_AT,
        "density": density,
        "bits_per_s": configs[0].tradeoff.bits_per_s, "alpha_s": configs[0].tradeoff.alpha_s,
        "networks": [{"name": n.name, "alpha_s": n.alpha_s, "beta_s_per_byte": n.beta_s_per_byte} for n in networks],
        "contenders": list(named), "relaxes": [relaxes(algo) for algo in algos],
        "options": [kept_times.options(algo) for algo in algos],
    })  # fmt: skip
    predicted_on = {row["nodes"] for row in before.get("rows", [])}
    sizes = sorted(predicted_on | {one.nodes for one in configs})
    shown = contenders.beside_dense(list(named.values()), density, sizes)
    if before:
        before.setdefault("options", [{} for _ in before["contenders"]])  # an old file does not say them
    if all(network in settings["networks"] for network in before.get("networks", [])):
        settings["networks"] = before.get("networks") or settings["networks"]  # a file that is new since changes no row
    if others := [name for name, value in settings.items() if before.get(name) != value]:
        if before.get("rows"):
            raise ConfigError(
                f"{out} was made with other settings ({', '.join(others)}), and its rows would be lost. "
                "Type what it was made with, or name another file with --out."
            )
        before = {"machine": {name: machine[name] for name in MACHINE}, "models": []}
    check_timed(before, configs, machine, out)
    on_map = before.get("on_map")  # an old file has one list, for any number of nodes
    same = isinstance(on_map, dict) and all(on_map.get(key) == shown["on_map"][key] for key in map(str, predicted_on))
    if same and not others:
        return before | shown
    asked = [(config.model.name, config.nodes) for config in configs]
    if any((row["model"], row["nodes"]) not in asked for row in before.get("rows", [])):
        raise ConfigError(
            f"{out} was made with other accuracies of committed runs, so that all its maps are to be made again. "
            "Type repro map with all its models and nodes, or name another file with --out."
        )
    return {**settings, **shown, **{name: before[name] for name in ("machine", "models")}, "rows": [], "maps": []}


def check_timed(before: dict[str, Any], configs: Sequence[Config], machine: dict[str, Any], out: Path) -> None:
    """Raises ConfigError where what is timed now would stand beside what was timed elsewhere, or with another batch."""
    timed = {known["model"]: known for known in before["models"]}
    for model, config in {config.model.name: config for config in configs}.items():
        if str(config.tradeoff.node) == "paper":
            node_profile.check_samples(node_profile.published(config), config)
            other = "tradeoff.node=measured, or seconds as in tradeoff.node=0.14+0.09"
            node_profile.check_published(config, other)
        if model in timed:
            kept_times.check(out, model, timed[model], settings(config))
    same_machine.check_added(out, before["machine"], machine, timed, [config.model.name for config in configs])


def settings(config: Config) -> dict[str, Any]:
    """Returns what the seconds of one model depend on, as the entry of the model says it."""
    batch = {"batch_per_node": config.batch_per_node, "accumulate": config.accumulate}
    return batch | kept_times.settings(config)


def profiled(summary: dict[str, Any], configs: Sequence[Config], out: Path) -> dict[str, Any]:
    """Returns when each layer of one model has its gradient, and each algorithm's compress seconds.

    Timed once, or as `tradeoff.node` states them.
    """
    model = configs[0].model.name
    for known in summary["models"]:
        if known["model"] == model:
            return dict(known)
    moments = node_profile.backward(summary["node"], configs[0])
    shapes, compress = node_profile.layers(configs[0]), {}
    for config in configs:
        if (name := contenders.timed_as(config, summary["density"])) not in compress:
            at = dataclasses.replace(config, nodes=COMPRESSED_AT)
            parameters = sum(map(math.prod, shapes))
            compress[name] = node_profile.stated_or_timed(summary["node"], at, parameters, shapes)
    found = {"model": model, **settings(configs[0]), "compute_s": max(moments), "compress_s": compress}
    summary["models"].append(rounded({**found, "moments_s": moments}))
    save(summary, out)
    return dict(summary["models"][-1])


def compress_s(profile: dict[str, Any], config: Config, density: float | None) -> float:
    """Returns the compress seconds of an algorithm with its wire format; in old files it is one for all formats."""
    known: dict[str, float] = profile["compress_s"]
    return known[name] if (name := contenders.timed_as(config, density)) in known else known[config.algo.name]


def predicted(
    configs: Sequence[Config],
    profile: dict[str, Any],
    advance: Callable[[], None] | None = None,
    density: float | None = None,
) -> dict[str, Iteration]:
    """Returns iterations by contender. One with only one bucket equals that without buckets, and is left out."""
    shapes, found = node_profile.layers(configs[0]), {}
    for config in configs:
        compress = compress_s(profile, config, density)
        found[contenders.contender(config, density)] = iteration(config, shapes, profile["moments_s"], compress)
        if advance is not None:
            advance()
    return {name: one for name, one in found.items() if one.config.bucket_mb is None or len(one.messages) > 1}


def fastest(
    among: dict[str, Iteration],
    exact: Sequence[str],
    bits_per_s: Sequence[float],
    alpha_s: Sequence[float],
    names: Sequence[str],
) -> dict[str, list[list[float]]]:
    """Returns for each latency and bandwidth which of `names` is the fastest, and how many times as fast as others.

    The others are the second, plain dense, the best of `exact`, and the one whose place it took as bandwidth grows:
    the last that got more than TIE ahead of the one before, or the first. The ratios have three digits. One that is
    alone is second too.
    """
    cells: dict[str, list[list[float]]] = {"fastest": [], **{name: [] for name in OVER}}
    for alpha in alpha_s:
        for line in cells.values():
            line.append([])
        standing = now = ""
        ahead = 1.0
        for bits in bits_per_s:
            seconds = {name: one.seconds(alpha, 8 / bits) for name, one in among.items()}
            first, second = (2 * sorted(seconds, key=seconds.__getitem__))[:2]
            if first != now:
                standing = now if ahead > TIE else standing or first
                now, ahead = first, 1.0
            ahead = max(ahead, seconds[standing] / seconds[first])
            others = {
                "over_second": seconds[second],
                "over_dense": seconds["dense"],
                "over_exact": min(seconds[name] for name in exact),
                "over_before": seconds[standing],
            }
            cells["fastest"][-1].append(names.index(first))
            for name, other in others.items():
                cells[name][-1].append(float(f"{other / seconds[first]:.3g}"))
    return cells


def save(summary: dict[str, Any], path: Path) -> None:
    """Writes the summary, one line for each entry of its three long lists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = []
    for name, value in rounded(summary).items():
        long = name in ("models", "rows", "maps")
        lines = ",\n".join(json_text(one, separators=(",", ":")) for one in value) if long else ""
        parts.append(f"{json_text(name)}: " + (f"[\n{lines}\n]" if long else json_text(value)))
    write_whole(path, "{" + ",\n".join(parts) + "}\n")
