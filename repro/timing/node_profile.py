"""What one node does between two exchanges: published, stated, or timed on this machine."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from repro import algorithms, models, rehearsal, results
from repro.buckets import Shapes
from repro.calibrate import clock, moments, repeated
from repro.collective import Collective
from repro.config import Config, ConfigError

FEW = 8  # images a batch where only the shares of the layers in a backward pass are wanted


@dataclass(frozen=True)
class Node:
    """Seconds of one iteration on one node, and the samples it does in them."""

    compute_s: float
    compress_s: float
    samples: int
    source: str


def layers(config: Config) -> Shapes:
    """Shapes of the configured model's parameters; it is not filled with numbers."""
    with torch.device("meta"):
        return [tuple(p.shape) for p in _model(config).parameters()]


def _model(config: Config) -> torch.nn.Module:
    generator = torch.Generator()
    size = config.data.image_size
    return models.load(config.model.name, config.data.classes, size, config.seed, generator, **config.model.options)


def profile(node: str, config: Config, parameters: int, shapes: Shapes | None = None) -> Node:
    """`paper`: published throughput of one node, published compress time. `measured`: this machine, now.
    `0.14` or `0.14+0.09`: seconds of compute, and of compress, of one batch. Raises ConfigError."""
    if node == "paper":
        return published(config)
    samples = config.batch_per_node * config.accumulate
    if node == "measured":
        compute_s = max(backward(node, config))
        return Node(compute_s, compress(config, parameters, shapes), samples, "measured")
    try:
        compute_s, compress_s = (float(part) for part in (node if "+" in node else f"{node}+0").split("+"))
    except ValueError:
        raise ConfigError(f"node={node}: choose paper, measured, or seconds as in 0.14+0.09.") from None
    return Node(compute_s, compress_s, samples, node)


def published(config: Config) -> Node:
    paper, name = results.load().paper, config.model.name
    parts, rates = paper["breakdown_gtopk_32_nodes"], paper["throughput_per_node"]
    if name not in parts:
        raise ConfigError(f"node=paper knows {', '.join(parts)}, not {name}; type node=measured or seconds.")
    batch = parts[name]["batch_per_node"]
    return Node(batch / rates[name]["single"], parts[name]["compress"], batch, "paper")


def backward(node: str, config: Config) -> list[float]:
    """Seconds from the start of an iteration until the gradient of each layer is there; the largest is its compute.

    The iteration takes what `node` says, as in `profile`; how backward shares it out is timed here. Raises ConfigError.
    """
    measured = node == "measured"
    compute_s = None if measured else profile(node, config, 0).compute_s
    found = ready(config, config.batch_per_node if measured else min(config.batch_per_node, FEW))
    # only the last micro-batch completes gradients
    last = max(found) if compute_s is None else compute_s / config.accumulate
    return [last * (moment / max(found) + config.accumulate - 1) for moment in found]


def ready(config: Config, batch: int) -> list[float]:
    """Seconds from the start of a forward and backward pass until the gradient of each layer is there.

    The median of several passes, layer by layer, on `batch` random images.
    """
    model, data = _model(config), config.data
    images = torch.randn(batch, 3, data.image_size, data.image_size)
    labels = torch.randint(data.classes, (batch,))
    weights = list(model.parameters())

    def once() -> list[float]:
        return moments(lambda: F.cross_entropy(model(images), labels).backward(), weights)

    once()  # warms up
    return [statistics.median(column) for column in zip(*repeated(once), strict=True)][:-1]


def compress(config: Config, parameters: int, shapes: Shapes | None = None) -> float:
    """Rank 0's own part of one step of `config.nodes`, whose peers send zeros; as most steps of a run are."""
    gradient = torch.randn(parameters)
    algorithm = rehearsal.steady(config.algo, parameters, shapes=shapes)
    algorithm.density = config.density
    echo = rehearsal.Echo(0, config.nodes)
    collective = Collective(echo)
    period = algorithms.period(algorithm)

    def once() -> float:
        copies, waited = [gradient.clone() for _ in range(period)], echo.seconds
        start = clock()
        for copy in copies:
            algorithms.one_step(algorithm, copy, collective)
        return clock() - start - (echo.seconds - waited)

    once()  # warms up
    return max(0.0, statistics.median(repeated(once)) / period)
