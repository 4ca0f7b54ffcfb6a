"""Which algorithm has the shortest iteration, over bandwidth and latency: nothing is trained."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from repro import profiles, provenance
from repro.choices import group_options
from repro.config import Config, ConfigError, named_network
from repro.predict import RELAXES, Iteration, iteration, label, relaxes
from repro.results import MACHINE, rounded

OUT = Path("results/summaries/tradeoff.json")
COMPRESSED_AT = 32  # nodes whose messages are there when compress is timed: those of the figure
MAPS = RELAXES[1:]  # the algorithms among which a map names the fastest


def run(sweep: Sequence[Config], say: Callable[[str], None]) -> None:
    """Predict every config's iteration on its grid of networks and write OUT; what is there already stays.

    A sparse algorithm in buckets selects something else, so it is no contender. Raises ConfigError.
    """
    configs = [config for config in sweep if config.overlap == "off" or not config.algo.sparse]
    if "dense" not in map(label, configs):
        raise ConfigError("experiment=tradeoff compares with dense; type algo=dense,... too")
    torch.set_num_threads(configs[0].threads or torch.get_num_threads())
    summary = begun(configs)
    wires = [(network["alpha_s"], network["beta_s_per_byte"]) for network in summary["networks"]]
    for model, nodes in dict.fromkeys((config.model.name, config.nodes) for config in configs):
        if any((row["model"], row["nodes"]) == (model, nodes) for row in summary["rows"]):
            continue
        own = [config for config in configs if config.model.name == model]
        profile = profiled(summary, own)
        found = predicted([config for config in own if config.nodes == nodes], profile)
        seconds = {name: [one.seconds(*wire) for wire in wires] for name, one in found.items()}
        summary["rows"].append({"model": model, "nodes": nodes, "seconds": seconds})
        given_up = dict(zip(summary["contenders"], summary["relaxes"], strict=True))
        exact = [name for name in found if given_up[name] == "exact"]
        for most in MAPS:
            among = {n: one for n, one in found.items() if RELAXES.index(given_up[n]) <= RELAXES.index(most)}
            cells = fastest(among, exact, summary["bits_per_s"], summary["alpha_s"], summary["contenders"])
            summary["maps"].append({"model": model, "nodes": nodes, "relax": most, **cells})
        save(summary, OUT)
        say(f"{model}, {nodes} nodes: {len(found)} algorithms")
    say(f"{OUT}: {len(summary['maps'])} maps. Draw them: repro plot figures --only tradeoff")


def begun(configs: Sequence[Config]) -> dict[str, Any]:
    """The summary as it is so far; an empty one where that was made with other settings."""
    names, machine = list(dict.fromkeys(map(label, configs))), provenance.describe("cpu", "random images")
    networks = [named_network(name) for name in group_options("network")]
    settings = rounded({
        "node": str(configs[0].tradeoff.node), "threads": torch.get_num_threads(), "compress_nodes": COMPRESSED_AT,
        "density": max((config.density for config in configs if config.algo.sparse), default=None),
        "bits_per_s": configs[0].tradeoff.bits_per_s, "alpha_s": configs[0].tradeoff.alpha_s,
        "networks": [{"name": n.name, "alpha_s": n.alpha_s, "beta_s_per_byte": n.beta_s_per_byte} for n in networks],
        "contenders": names, "relaxes": [relaxes(next(c for c in configs if label(c) == n).algo) for n in names],
    })  # fmt: skip
    before = json.loads(OUT.read_text()) if OUT.exists() else {}
    if all(before.get(name) == value for name, value in settings.items()):
        return before
    return {**settings, "machine": {name: machine[name] for name in MACHINE}, "models": [], "rows": [], "maps": []}


def profiled(summary: dict[str, Any], configs: Sequence[Config]) -> dict[str, Any]:
    """Of one model: when each layer has its gradient, and the compress seconds of every algorithm. Timed once."""
    model = configs[0].model.name
    for known in summary["models"]:
        if known["model"] == model:
            return dict(known)
    moments = profiles.backward(summary["node"], configs[0])
    batch, shapes, compress = configs[0].batch_per_node * configs[0].accumulate, profiles.layers(configs[0]), {}
    for config in configs:
        if config.algo.name not in compress:
            at = dataclasses.replace(config, nodes=COMPRESSED_AT)
            compress[config.algo.name] = profiles.compress(at, sum(map(math.prod, shapes)), shapes)
    found = {"model": model, "compute_s": max(moments), "batch_per_node": batch, "compress_s": compress}
    summary["models"].append(rounded({**found, "moments_s": moments}))
    save(summary, OUT)
    return dict(summary["models"][-1])


def predicted(configs: Sequence[Config], profile: dict[str, Any]) -> dict[str, Iteration]:
    """By label. What has one bucket is no other iteration than without buckets, and left out."""
    shapes, compress = profiles.layers(configs[0]), profile["compress_s"]
    found = {label(c): iteration(c, shapes, profile["moments_s"], compress[c.algo.name]) for c in configs}
    return {name: one for name, one in found.items() if one.config.bucket_mb is None or len(one.messages) > 1}


def fastest(
    among: dict[str, Iteration],
    exact: Sequence[str],
    bits_per_s: Sequence[float],
    alpha_s: Sequence[float],
    names: Sequence[str],
) -> dict[str, list[list[float]]]:
    """For each latency and bandwidth: which of `names` is the fastest, and how many times as fast as others.

    As the second, as plain dense, and as the best of `exact`; three digits.
    """
    cells: dict[str, list[list[float]]] = {"fastest": [], "over_second": [], "over_dense": [], "over_exact": []}
    for alpha in alpha_s:
        for line in cells.values():
            line.append([])
        for bits in bits_per_s:
            seconds = {name: one.seconds(alpha, 8 / bits) for name, one in among.items()}
            first, second = sorted(seconds, key=seconds.__getitem__)[:2]
            others = {
                "over_second": seconds[second],
                "over_dense": seconds["dense"],
                "over_exact": min(seconds[name] for name in exact),
            }
            cells["fastest"][-1].append(names.index(first))
            for name, other in others.items():
                cells[name][-1].append(float(f"{other / seconds[first]:.3g}"))
    return cells


def save(summary: dict[str, Any], path: Path) -> None:
    """Of the three long lists, one entry a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = []
    for name, value in rounded(summary).items():
        long = name in ("models", "rows", "maps")
        lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in value) if long else ""
        parts.append(f"{json.dumps(name)}: " + (f"[\n{lines}\n]" if long else json.dumps(value)))
    path.write_text("{" + ",\n".join(parts) + "}\n")
