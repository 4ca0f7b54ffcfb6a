"""Predicts, for each network and wire, what dividing the images, the network or both among the nodes takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from repro.comm.traffic import Link
from repro.config.compose import algorithm, compose, named_network
from repro.config.schema import Config, ConfigError
from repro.density import entries
from repro.json_text import json_text
from repro.report import same_machine, summaries
from repro.report.from_run_folders import MACHINE
from repro.report.group import rounded
from repro.runs import places, provenance
from repro.timing import dry_run, kept_times, node_profile, pipelined, predict, stated_stages
from repro.train.split import Block, Split, balanced
from repro.whole_files import write_whole

OUT = Path("results/summaries/split_predictions.json")
WIRES = ("ethernet1g", "ethernet10g", "infiniband100g")
ALGOS = ("dense", "gtopk")
STAGES = (2, 4, 8, 16)
DENSITY = 0.001  # of summaries that do not say theirs
LARGER = 4  # times the images of a step, where gradients are accumulated before they are sent
BUCKET_MB = 25.0  # DDP's default
Row = dict[str, Any]


def run(configs: Sequence[Config], say: Callable[[str], None], out: Path) -> None:
    """Predicts every strategy for the networks and nodes of `configs`; what `out` has timed, and its other rows, stay.

    Raises ConfigError.
    """
    node_profile.check_unstated(configs, "the published ones")
    torch.set_num_threads(1)
    machine = provenance.describe("cpu", "random images")
    places.check_file(out)
    before = kept_times.read(out, "repro strategies", ("networks", "blocks", "rows"))
    timed: dict[str, list[Any]] = before.get("blocks", {})
    networks = [named_network(name) for name in WIRES]
    wires = [{"name": n.name, "alpha_s": n.alpha_s, "beta_s_per_byte": n.beta_s_per_byte} for n in networks]
    known: dict[tuple[str, int], list[Row]] = {}
    for row in before.get("rows", []):
        known.setdefault((row["model"], row["nodes"]), []).append(row)
    if others := [config.algo.name for config in configs if config.algo.name not in ALGOS]:
        raise ConfigError(f"algo={others[0]}: strategies are of {' and '.join(ALGOS)}; leave algo out")
    firsts = {config.model.name: config for config in reversed(configs) if config.algo.sparse}  # they have a density
    if not firsts:
        raise ConfigError("the strategies need a density: type algo=gtopk,... too")
    counts = {model: sorted({one.nodes for one in configs if one.model.name == model}) for model in reversed(firsts)}
    check_alike([config for config in configs if config.algo.sparse])
    density = rounded(next(iter(firsts.values())).density)
    kept = known.keys() - {(model, nodes) for model in counts for nodes in counts[model]}
    if kept and before["networks"] != rounded(wires):
        raise ConfigError(
            f"{out} was made with other networks, and rows of it would not agree with new ones. "
            "Type repro strategies without model= and nodes=, or name another file with --out."
        )
    if kept and before.get("density", DENSITY) != density:
        raise kept_times.other(out, "density", before.get("density", DENSITY), density)
    for model, nodes in sorted(kept):
        images = {row["images"] // nodes for row in known[model, nodes] if row["kind"] == "synchronous"}
        asked = _images(firsts[model]) if model in firsts else None
        if asked and images - {asked}:
            raise kept_times.other(out, f"images of a step of {model} on a node", max(images), asked)
        if asked:  # a pipeline has other micro-batches where they are divided otherwise
            kept_times.check(out, model, _said(before, firsts[model]), _batch(firsts[model]))
    settings = settings_of(before, [firsts[model] for model in counts], out)
    for config in firsts.values():
        node_profile.check_published(config, "what they are of: here there are no others")
    same_machine.check_added(out, before.get("machine", {}), machine, timed, list(firsts))
    for model, config in reversed(firsts.items()):
        if model not in timed:
            timed[model] = rounded([dataclasses.asdict(block) for block in stated_stages.shares(config)])
        blocks = [Block(**block) for block in timed[model]]
        for nodes in counts[model]:
            known[model, nodes] = [
                one | on
                for one in candidates(config, blocks, nodes)
                for on in _on_wires(one.pop("seconds"), one["images"], networks)
            ]
        say(f"{model}: {sum(len(known[model, nodes]) for nodes in counts[model])} predictions")
    rows = [row for own in known.values() for row in own]
    summary = {
        "node": "paper", "machine": before.get("machine") or {name: machine[name] for name in MACHINE},
        "density": density, "networks": wires, "settings": settings,
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    head = json_text(rounded(summary), indent=1).rstrip().removesuffix("}").rstrip()
    text = ",\n".join(json_text(rounded(row)) for row in rows)
    write_whole(out, f'{head},\n "blocks": {json_text(timed)},\n "rows": [\n{text}\n]}}\n')
    say(f"{out}: {len(rows)} predictions")
    say(summaries.unread_file(out, OUT.name) or "Draw them: repro plot figures --only strategies")


def settings_of(before: dict[str, Any], configs: Sequence[Config], out: Path) -> dict[str, Any]:
    """Returns the settings of every model in the file and in `configs`. Raises ConfigError where they disagree."""
    found: dict[str, Any] = dict(before.get("settings", {}))
    for config in configs:
        model, asked = config.model.name, kept_times.settings(config)
        if blocks := before.get("blocks", {}).get(model):
            said = {"parameters": sum(block["parameters"] for block in blocks)} | found.get(model, {})
            kept_times.check(out, model, said, asked)
        found[model] = _batch(config) | asked
    return found


def check_alike(configs: Sequence[Config]) -> None:
    """Raises ConfigError where the densities, or the batches, images or precisions of one model, are several."""
    densities = sorted({config.density for config in configs})
    if len(densities) > 1:
        raise ConfigError(f"density={','.join(f'{one:g}' for one in densities)}: strategies have one; type one of them")
    names = {
        (one.model.name, one.batch_per_node, one.accumulate, one.precision, str((one.model, one.data)))
        for one in configs
    }
    models = [model for model, *_ in names]
    if several := [model for model in models if models.count(model) > 1]:
        raise ConfigError(
            f"model={several[0]}: its strategies are of one batch, network and precision; type one value of each key"
        )


def _images(config: Config) -> int:
    return config.batch


def _batch(config: Config) -> dict[str, Any]:
    return {"batch_per_node": config.batch_per_node, "accumulate": config.accumulate}


def _said(before: dict[str, Any], config: Config) -> dict[str, Any]:
    """Returns how the images of a step were divided; what an old file does not say is the experiment's."""
    settings: dict[str, Any] = before.get("settings", {}).get(config.model.name, {})
    if "accumulate" in settings:
        return settings
    keys = ["experiment=strategies", f"model={config.model.name}", f"data={config.data.name}"]
    return settings | _batch(compose(keys)[0])


def _on_wires(seconds: Callable[[Link], float], images: int, networks: Sequence[Any]) -> Iterator[Row]:
    for wire in networks:
        iteration_s = seconds(Link(wire.alpha_s, wire.beta_s_per_byte))
        yield {"network": wire.name, "iteration_s": iteration_s, "images_per_s": images / iteration_s}


def candidates(config: Config, blocks: Sequence[Block], nodes: int) -> Iterator[Row]:
    """Yields what is known of each strategy on so many nodes; `seconds` puts its iteration on a link."""
    base = dataclasses.replace(config, nodes=nodes, node=None, stages=1, cuts=[])
    for algo in ALGOS:
        yield from _data(base, blocks, algo, "synchronous")
        yield from _data(dataclasses.replace(base, accumulate=LARGER * base.accumulate), blocks, algo, "accumulated")
    overlapped = dataclasses.replace(base, bucket_mb=BUCKET_MB, overlap="on")
    yield from _data(overlapped, blocks, "dense", "overlapped")
    yield from _data(base, blocks, "async_average", "asynchronous")
    for stages in STAGES:
        if stages <= len(blocks) and nodes % stages == 0:
            for algo in ALGOS if stages < nodes else ("dense",):
                yield _piped(dataclasses.replace(with_algo(base, algo), stages=stages), blocks)


def with_algo(config: Config, name: str) -> Config:
    algo = algorithm(name, {})
    return dataclasses.replace(config, algo=algo, density=config.density if algo.sparse else 1.0)


def _seconds(config: Config) -> tuple[float, float]:
    """Returns compute and compress of a step; both are published of the images that the paper has."""
    node = node_profile.published(config)
    steps = config.batch / node.samples
    if node.compress_s is None:
        raise ConfigError(f"algo={config.algo.name}: its seconds of compress are not published; leave it out")
    return node.compute_s * steps, node.compress_s


def _data(base: Config, blocks: Sequence[Block], algo: str, kind: str) -> Iterator[Row]:
    config = with_algo(base, algo)
    compute_s, compress_s = _seconds(config)
    shapes = node_profile.layers(config)
    one = predict.iteration(config, shapes, moments(blocks, shapes, config, compute_s), compress_s)
    parameters = sum(block.parameters for block in blocks)
    rounds = dry_run.all_rounds(config.algo, config.nodes, parameters, entries(config.density, parameters))
    whole = [stated_stages.scaled(blocks, config, compute_s)]
    yield _about(config, kind) | {
        "bytes_most": pipelined.each(max(map(pipelined.sent, rounds)), one.period),
        "memory": pipelined.memory(whole, 1),
        "seconds": lambda link: one.seconds(*link),
    }


def moments(blocks: Sequence[Block], shapes: Sequence[Sequence[int]], config: Config, compute_s: float) -> list[float]:
    """Returns when each layer has its gradient: with its whole block, in the last micro-batch of a step."""
    scaled = stated_stages.scaled(blocks, config, compute_s)
    backward = list(accumulate(block.backward_s for block in reversed(scaled)))[::-1]
    last = compute_s - backward[0]
    ends = list(accumulate(block.parameters for block in scaled))
    places = accumulate(map(math.prod, shapes))
    return [last + backward[next(n for n, end in enumerate(ends) if place <= end)] for place in places]


def _piped(config: Config, blocks: Sequence[Block]) -> Row:
    compute_s, compress_s = _seconds(config)
    own = stated_stages.scaled(blocks, config, compute_s)
    split = Split(own, balanced(own, config.stages))
    one = pipelined.iteration(config, split, compress_s)
    return _about(config, "synchronous") | {
        "bytes_most": one.bytes_most(),
        "memory": pipelined.memory(split.parts(own), config.micro_batches),
        "seconds": lambda link: one.parts(link).total,
    }


def _about(config: Config, kind: str) -> Row:
    return {
        "model": config.model.name, "nodes": config.nodes, "stages": config.stages, "algo": config.algo.name,
        "kind": kind, "images": config.nodes * _images(config),
    }  # fmt: skip
