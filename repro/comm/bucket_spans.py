"""Splits a flat gradient into buckets of whole layers, and times when each is full and how much backward hides."""

import itertools
import math
from collections.abc import Sequence

MB = 1 << 20
Shapes = Sequence[Sequence[int]]


def spans(shapes: Shapes, bucket_mb: float) -> list[slice]:
    """Returns the buckets as slices of the flat float32 gradient, in the order in which backward fills them.

    A bucket ends with the layer that brings it to `bucket_mb`, as in DDP with a given size (DDP's default begins
    with a bucket of 1 MB instead).
    """
    sizes = list(map(math.prod, shapes))
    start = stop = sum(sizes)
    buckets = []
    for size in reversed(sizes):
        start -= size
        if start < stop and (4 * (stop - start) >= bucket_mb * MB or start == 0):
            buckets.append(slice(start, stop))
            stop = start
    return buckets


def shapes_inside(shapes: Shapes, span: slice) -> list[Sequence[int]]:
    """Returns the shapes of the layers inside `span`."""
    ends = itertools.accumulate(map(math.prod, shapes))
    return [shape for shape, end in zip(shapes, ends, strict=True) if span.start < end <= span.stop]


def when_full(spans: Sequence[slice], shapes: Shapes, moments: Sequence[float]) -> list[float]:
    """Returns when each bucket is full, from the `moments` at which the layers have their gradients.

    No bucket is ready before the bucket in front of it.
    """
    starts = [0, *itertools.accumulate(map(math.prod, shapes))]
    full = [
        max(moment for moment, start in zip(moments, starts, strict=False) if span.start <= start < span.stop)
        for span in spans
    ]
    return list(itertools.accumulate(full, max))


def split_seconds(spans: Sequence[slice], seconds: float) -> list[float]:
    """Splits the seconds that all buckets take among them, in proportion to their sizes."""
    whole = sum(span.stop - span.start for span in spans)
    return [seconds * (span.stop - span.start) / whole for span in spans]


def hidden_s(ready: Sequence[float], compress: Sequence[float], communicate: Sequence[float]) -> float:
    """Returns how many seconds of communication backward hides; `ready` counts seconds from the step's start.

    One core computes and compresses, so compressing a bucket delays the rest of backward; one wire carries the
    buckets in order. Backward ends with the last bucket.
    """
    delay, wire = 0.0, 0.0
    for moment, work, message in zip(ready, compress, communicate, strict=True):
        delay += work
        wire = max(wire, moment + delay) + message
    return max(0.0, sum(communicate) - (wire - ready[-1] - delay))  # a sum rounds
