"""Makes what aggregates a run's gradients: an algorithm, whole or in buckets, for all ranks or between machines."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from repro import algorithms
from repro.algorithms import Algorithm
from repro.comm import bucket_spans
from repro.comm.bucket_spans import Shapes
from repro.config.schema import Config
from repro.train.buckets import Buckets
from repro.train.hierarchical import Hierarchical

if TYPE_CHECKING:
    from repro.cluster.ranks import Rank


def load(config: Config, shapes: Shapes, rank: Rank, alone: bool = False) -> Algorithm:
    """Makes the algorithm of `config` for layers of `shapes`: whole or in buckets, for all ranks or between machines.

    `alone`: it is timed without the other ranks, so that what would be sent inside backward is in `Buckets` too.
    Raises ConfigError for an option's value.
    """

    def one(layers: Shapes, number: int = 0) -> Algorithm:
        algo = algorithms.of_bucket(config.algo, number)
        make = functools.partial(algorithms.load, algo, sum(map(math.prod, layers)), rank.device, layers)
        if not config.hierarchical:
            return make()
        return Hierarchical(make, rank.machines, rank.number, algorithms.period(config.algo))

    if config.bucket_mb is None and not (alone and algorithms.of(config.algo).wraps):
        return one(shapes)
    parts = algorithms.spans(config, shapes)
    return Buckets(parts, [one(bucket_spans.shapes_inside(shapes, part), number) for number, part in enumerate(parts)])
