"""Gives the seconds that one node computes and compresses: published, stated, or timed on this machine."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from repro import algorithms, models
from repro.cluster import devices, memory
from repro.comm.bucket_spans import Shapes
from repro.config.compose import compose
from repro.config.counts import node_seconds
from repro.config.groups import about
from repro.config.schema import Config, ConfigError
from repro.report import summaries
from repro.timing import compress_time
from repro.timing.one_rank import moments, repeated
from repro.train.precision import arithmetic
from repro.train.replica import Replica

FEW = 8, 2  # samples a batch where only the shares of the layers in a backward pass are wanted: small ones, and others
SMALL = 64  # pixels on each side of a small image
Timed = dict[str, list[float]]  # what `ready` found, by what it depends on


@dataclass(frozen=True)
class Node:
    """Holds the seconds of one iteration on one node, and how many samples it processes in them.

    A `compress_s` of None is not known.
    """

    compute_s: float
    compress_s: float | None
    samples: int
    source: str
    accumulate: int = 1  # the micro-batches of an iteration


def layers(config: Config) -> Shapes:
    """Returns the shapes of the configured model's parameters, without allocating them."""
    sized = models.sized(config.model.name, config.data.classes, config.data.image_size, config.model.options)
    return [tuple(p.shape) for p in sized.parameters()]


def model(config: Config, generator: torch.Generator | None = None) -> torch.nn.Module:
    """Returns the network, whose dropout draws from `generator`."""
    size, drawn = config.data.image_size, generator or torch.Generator()
    return models.load(config.model.name, config.data.classes, size, config.seed, drawn, **config.model.options)


def profile(
    node: str, config: Config, parameters: int, shapes: Shapes | None = None, timed: Timed | None = None
) -> Node:
    """Returns the profile that `node` names. Raises ConfigError.

    `paper`: published throughput of one node and published compress time. `measured`: this machine, now, on the device
    that a run would take; `timed` is as in `backward`.
    `0.14` or `0.14+0.09`: stated seconds of compute, and of compress, of one batch.

    The published compress time is gTop-k's. It stands for every sparse algorithm, and is not known of the others that
    compress; nor is that of any where compute alone is stated.
    """
    if node == "paper":
        return published(config)
    samples = config.batch
    seconds = node_seconds(node)
    if seconds is None:
        compute_s = max(backward(node, config, timed))
        return Node(
            compute_s, compress_time.compress(config, parameters, shapes), samples, "measured", config.accumulate
        )
    compute_s, compress_s = seconds
    if not algorithms.compresses(config.algo):
        compress_s = 0.0
    return Node(compute_s, compress_s, samples, node, config.accumulate)


def published(config: Config) -> Node:
    paper, name = summaries.paper(), config.model.name
    parts, rates = paper["breakdown_gtopk_32_nodes"], paper["throughput_per_node"]
    if name not in rates or not isinstance(rates[name], dict):
        known = [model for model, of_model in rates.items() if isinstance(of_model, dict)]
        raise ConfigError(
            f"node=paper knows {', '.join(known)}, not {name}; type node=measured, or seconds as in node=0.14+0.09."
        )
    batch, sparse = summaries.timed_batch(paper, name), about(config.algo.name)["family"] == "sparse"
    sparse_s = parts[name]["compress"] if name in parts else None  # no parts are published of the LSTM's iteration
    compress_s = 0.0 if not algorithms.compresses(config.algo) else sparse_s if sparse else None
    return Node(batch / rates[name]["single"], compress_s, batch, "paper", parts.get(name, {}).get("accumulate", 1))


def check_samples(node: Node, config: Config) -> None:
    """Raises ConfigError if the seconds of `node` are of another number of samples than a step of `config` has."""
    samples = config.batch
    if node.samples != samples:
        batch = f"batch_per_node={node.samples // node.accumulate}"
        parts = f" accumulate={node.accumulate}" if config.accumulate != node.accumulate else ""
        raise ConfigError(
            f"node={config.node or node.source}: the published seconds are of {node.samples} samples a step, not "
            f"{samples}; type {batch}{parts}"
        )


def check_published(config: Config, instead: str = "node=measured, or seconds as in node=0.14+0.09") -> None:
    """Raises ConfigError if the published seconds are of other inputs, another precision or another network.

    `instead` is what its user types to have other seconds.
    """
    published(config)  # refuses a network of which nothing is published
    ours = _inputs(config)
    for key, value in _published_inputs(config.model.name).items():
        if ours[key] != value:
            raise ConfigError(
                f"node={config.node or 'paper'}: the published seconds are of {key}={value}, not {ours[key]}; "
                f"type {instead}"
            )


@functools.cache  # a sweep asks for each of its points
def _published_inputs(name: str) -> dict[str, Any]:
    return _inputs(*compose([f"model={name}", f"data={summaries.paper()['models'][name]['dataset']}"]))


def _inputs(config: Config) -> dict[str, Any]:
    """Returns what the seconds of a step depend on beside its samples."""
    data = {f"data.{key}": getattr(config.data, key) for key in ("image_size", "sequence")}
    return {"precision": config.precision, **config.model.options, **data}


def check_unstated(configs: Sequence[Config], read: str) -> None:
    """Raises ConfigError where `compute_s` is set, by a command that does not read it: `read` says what it has instead.

    That is a key, as in "node=", or in words where the seconds are from.
    """
    if stated := [config.compute_s for config in configs if config.compute_s is not None]:
        instead = f"type {read}{stated[0]:g}" if read.endswith("=") else "leave compute_s out"
        raise ConfigError(f"compute_s={stated[0]:g}: the seconds of a node are {read} here; {instead}")


def check_nothing_stated(configs: Iterable[Config]) -> None:
    """Raises ConfigError where `node` is set, by a command that measures without stated compute."""
    for config in configs:
        if config.node is not None:
            raise ConfigError(f"node={config.node}: all is measured here, no node's seconds are stated; leave node out")


def set_threads(config: Config) -> None:
    """Sets the threads of one node, whose machine this is: `threads`, or all its cores."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)


def backward(node: str, config: Config, timed: Timed | None = None) -> list[float]:
    """Returns seconds from the start of an iteration until each layer's gradient is complete; the largest is compute.

    The iteration takes what `node` says, as in `profile`; how backward divides it is timed here, once for each network
    where `timed` keeps it, so that rows do not differ by its noise. Raises ConfigError, also where published seconds
    are of other samples than those of a step.
    """
    measured, compute_s = node == "measured", None
    if not measured:
        known = profile(node, config, 0)
        check_samples(known, config)
        compute_s = known.compute_s
    few = min(config.batch_per_node, FEW[config.data.image_size > SMALL])
    batch, timed = config.batch_per_node if measured else few, {} if timed is None else timed
    same = str((config.model, config.data, batch, config.precision, config.device))
    found = timed[same] if same in timed else timed.setdefault(same, ready(config, batch))
    # only the last micro-batch completes gradients
    last = max(found) if compute_s is None else compute_s / config.accumulate
    return [last * (moment / max(found) + config.accumulate - 1) for moment in found]


def ready(config: Config, batch: int) -> list[float]:
    """Returns seconds from the start of an iteration until each layer's gradient is complete.

    Each is the median of several on `batch` random samples. An iteration is taken to begin with the update of the one
    before, for which no message waits.
    """
    data, device = config.data, devices.of_one(config)
    memory.keep_freed()  # as each rank does
    network = model(config, torch.Generator(device)).to(device)
    made_up = models.made_up_batch(batch, data.classes, data.image_size, data.sequence)
    inputs, labels = (x.to(device) for x in made_up)
    weights = list(network.parameters())
    replica = Replica(network, config.momentum, config.weight_decay, config.weight_decay_of)

    def step() -> None:
        replica.apply(replica.gradient, 0.0)
        replica.gradient.zero_()
        with arithmetic(config.precision, device.type):
            logits = network(inputs).float()
        F.cross_entropy(logits, labels).backward()

    def once() -> list[float]:
        return moments(step, weights)

    once()  # warms up
    return [statistics.median(column) for column in zip(*repeated(once), strict=True)][:-1]


def stated_or_timed(node: str, config: Config, parameters: int, shapes: Shapes) -> float:
    """Returns the seconds of compress that `node` states, for every algorithm that compresses, or times them here."""
    stated = profile(node, config, parameters).compress_s if "+" in node else None
    return compress_time.compress(config, parameters, shapes) if stated is None else stated
