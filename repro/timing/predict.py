"""Predicts the seconds of one iteration on any network, from the algorithm's own messages and one node's seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from repro import algorithms
from repro.comm import bucket_spans
from repro.comm.bucket_spans import Shapes
from repro.comm.critical_paths import Path, critical_paths
from repro.config.counts import RELAXES as RELAXES  # asked for here
from repro.config.parts import Algo
from repro.config.schema import Config, ConfigError
from repro.iteration_time import IterationTime
from repro.timing import dry_run
from repro.train import combinations


@dataclass(frozen=True)
class Iteration:
    """Holds the parts of an iteration of `config`; `seconds` puts it on a network."""

    config: Config
    compute_s: float
    compress_s: float
    messages: list[list[Path]]  # critical paths of a period of steps, or of each bucket of one step in order
    period: int
    covered_s: float  # communication in the background that a step can cover
    ready: list[float]  # with overlap: seconds from the start of the step until backward has filled each bucket
    shares: list[float]  # with overlap: seconds to compress each bucket

    def seconds(self, alpha_s: float, beta_s_per_byte: float) -> float:
        return self.parts(alpha_s, beta_s_per_byte).total

    def parts(self, alpha_s: float, beta_s_per_byte: float) -> IterationTime:
        each = [max(path.seconds(alpha_s, beta_s_per_byte) for path in paths) for paths in self.messages]
        communicate = sum(each) / self.period
        hidden = (
            bucket_spans.hidden_s(self.ready, self.shares, each) if self.ready else min(communicate, self.covered_s)
        )
        return IterationTime(self.compute_s, self.compress_s, communicate, hidden)

    def latency_s(self, alpha_s: float) -> float:
        """Returns the communication that would remain on a network of unlimited bandwidth."""
        return self.parts(alpha_s, 0.0).communicate_s


def iteration(config: Config, shapes: Shapes, moments: Sequence[float], compress_s: float) -> Iteration:
    """Predicts from `moments`, the seconds from the start of a step until each layer of `shapes` has its gradient.

    Raises ConfigError where the algorithm does not allow the buckets asked for.
    """
    check(config)
    combinations.check(elsewhere(config))
    spans = algorithms.spans(config, shapes)
    overlap = algorithms.overlaps(config)
    period, compute_s = algorithms.period(config.algo), max(moments)
    return Iteration(
        config, compute_s, compress_s,
        [critical_paths(part) for part in dry_run.in_parts(config, config.nodes, shapes, spans)], period,
        algorithms.delay(config.algo) * (compute_s + compress_s) / period,
        bucket_spans.when_full(spans, shapes, moments) if overlap else [],
        bucket_spans.split_seconds(spans, compress_s) if overlap else [],
    )  # fmt: skip


def check(config: Config) -> None:
    """Raises ConfigError for settings whose messages are not predicted here."""
    if config.stages > 1:
        raise ConfigError(f"stages={config.stages}: pipelines are predicted by `repro strategies`; type stages=1 here")
    if config.hierarchical:
        raise ConfigError("hierarchical=true: its messages inside a machine are not modelled; leave hierarchical out")


def elsewhere(config: Config) -> Config:
    """Returns the configuration on machines that could run it, a process for each rank: this one may be no such."""
    cluster = config.cluster
    if cluster.name != "lab":
        cluster = replace(cluster, name="processes", messages="gloo")
    return replace(config, device="cpu", cuda_graph="off", cluster=cluster)


def relaxes(algo: Algo) -> str:
    """Returns which of RELAXES the algorithm is.

    `exact`: every node applies the mean gradient. `compressed`: an approximation of it, the same on all nodes.
    `all`: its nodes hold different weights.
    """
    if algorithms.of(algo).mixes:
        return "all"
    return "compressed" if algorithms.compresses(algo) else "exact"


def with_wire(algo: Algo) -> str:
    """Returns the algorithm's name with its wire format, if that is not plain pairs."""
    return algo.name + (f", {algo.wire}" if algo.wire != "pairs" else "")


def label(config: Config) -> str:
    """Returns the algorithm's name in tables and figures, with its wire format, buckets and whether they overlap."""
    name = with_wire(config.algo)
    if config.bucket_mb is None:
        return name
    return f"{name}, {config.bucket_mb:g} MB" + (" overlapped" if config.overlap == "on" else "")
