"""Seconds of one iteration of an algorithm on any network, from its own messages and what one node does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from repro import algorithms, buckets, rehearsal
from repro.buckets import Shapes
from repro.choices import about
from repro.config import Config
from repro.critical import Path, critical_paths
from repro.results import PARTS, iteration_s
from repro.schedule import entries
from repro.schema import Algo
from repro.tables import Row

RELAXES = ("exact", "compressed", "all")  # what is given up, least first; each holds the one before


@dataclass(frozen=True)
class Iteration:
    """What an iteration of `config` is made of; `seconds` puts it on a network."""

    config: Config
    compute_s: float
    compress_s: float
    messages: list[list[Path]]  # of a period of steps, or of one step's buckets in their order: the critical paths
    period: int
    covered_s: float  # communication in the background that a step can cover
    ready: list[float]  # with overlap: seconds from the start of the step until backward has filled each bucket
    shares: list[float]  # with overlap: seconds to compress each bucket

    def seconds(self, alpha_s: float, beta_s_per_byte: float) -> float:
        return iteration_s(self.parts(alpha_s, beta_s_per_byte))

    def parts(self, alpha_s: float, beta_s_per_byte: float) -> Row:
        """compute_s, compress_s, communicate_s, and hidden_s: how much of these went on beside the others."""
        each = [max(path.seconds(alpha_s, beta_s_per_byte) for path in paths) for paths in self.messages]
        communicate = sum(each) / self.period
        hidden = buckets.hidden_s(self.ready, self.shares, each) if self.ready else min(communicate, self.covered_s)
        seconds = dict(zip(PARTS, (self.compute_s, self.compress_s, communicate), strict=True))
        return {**seconds, "hidden_s": hidden}

    def latency_s(self, alpha_s: float) -> float:
        """Of its communication, what would be left on a network of endless bandwidth."""
        return float(self.parts(alpha_s, 0.0)["communicate_s"])


def iteration(config: Config, shapes: Shapes, moments: Sequence[float], compress_s: float) -> Iteration:
    """`moments`: seconds from the start of a step until each of the layers of `shapes` has its gradient.

    Raises ConfigError where the algorithm cannot have the buckets asked for.
    """
    buckets.check(config)
    algorithm = algorithms.load(config.algo, 1)
    whole = [slice(0, sum(map(math.prod, shapes)))]
    own = hasattr(algorithm, "wrap")  # DDP: buckets of its own, beside backward
    if own:
        spans = buckets.like_ddp(algorithm, shapes).spans
    else:
        spans = whole if config.bucket_mb is None else buckets.spans(shapes, config.bucket_mb)
    overlap = own or config.overlap == "on"
    period, compute_s = algorithms.period(algorithm), max(moments)
    return Iteration(
        config, compute_s, compress_s, [_paths(config, shapes, span) for span in spans], period,
        getattr(algorithm, "delay", 0) * (compute_s + compress_s) / period,
        buckets.ready(spans, shapes, moments) if overlap else [],
        buckets.shares(spans, compress_s) if overlap else [],
    )  # fmt: skip


def _paths(config: Config, shapes: Shapes, span: slice) -> list[Path]:
    size = span.stop - span.start
    held = buckets.held(shapes, span)
    return critical_paths(
        rehearsal.schedule(config.algo, config.nodes, size, entries(config.density, size), shapes=held)
    )


def relaxes(algo: Algo) -> str:
    """`exact`: every node applies the mean gradient. `compressed`: an approximation of it, the same on all nodes.
    `all`: its nodes hold different weights."""
    if algorithms.mixes(algorithms.load(algo, 8)):
        return "all"
    return "exact" if about(algo.name).get("family") == "full precision" else "compressed"


def label(config: Config) -> str:
    """The algorithm as tables and figures name it, with what is sent beside backward."""
    if config.bucket_mb is None:
        return config.algo.name
    return f"{config.algo.name}, {config.bucket_mb:g} MB" + (" overlapped" if config.overlap == "on" else "")
