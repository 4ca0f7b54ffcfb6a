"""Says how well a network does on its test data: accuracy on images, perplexity on text. What says it asks here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Metric:
    """Names the measure of one kind of data. `key` is the field of metrics.jsonl and of summaries."""

    key: str
    name: str
    label: str  # of a column or an axis, whose values are `unit` times those of metrics.jsonl
    unit: float
    samples: str  # what a network reads so many of a second
    falls: bool  # whether less is better

    def cell(self, value: float | None) -> float | None:
        """Returns the value in the unit of `label`."""
        return None if value is None else self.unit * value

    def said(self, value: float) -> str:
        """Writes a value: `accuracy 87.47 %`, `perplexity 113`."""
        return f"{self.name} {value:.4g}" if self.falls else f"{self.name} {self.unit * value:.2f} %"

    def short(self, value: float) -> str:
        """Writes a value beside others of its kind: `87.5 %`, `113`."""
        return f"{value:.4g}" if self.falls else f"{self.unit * value:.1f} %"

    @property
    def worst(self) -> float:
        """Returns what stands for an evaluation that gave no number."""
        return math.inf if self.falls else 0.0

    def reached(self, value: float | None, target: float) -> bool:
        """Returns whether `value` is at least as good as `target`."""
        return value is not None and (value <= target if self.falls else value >= target)

    def best(self, values: Iterable[float | None]) -> float | None:
        """Returns the best of the values that are known; None of none."""
        known = [value for value in values if value is not None]
        return None if not known else min(known) if self.falls else max(known)


ACCURACY = Metric("test_accuracy", "accuracy", "accuracy (%)", 100.0, "images", falls=False)
PERPLEXITY = Metric("test_perplexity", "perplexity", "perplexity", 1.0, "sequences", falls=True)
ALL = (ACCURACY, PERPLEXITY)


def of(data: Mapping[str, Any]) -> Metric:
    """Returns the measure of a data set, from the keys of its configuration; only a text has a `sequence`."""
    return PERPLEXITY if data.get("sequence") else ACCURACY


def of_line(line: Mapping[str, Any]) -> Metric:
    """Returns the measure of an evaluation, or of a point of a curve, that has one of them, be its number known or not.

    A network that diverged at once has a perplexity that is no number.
    """
    return PERPLEXITY if PERPLEXITY.key in line else ACCURACY
