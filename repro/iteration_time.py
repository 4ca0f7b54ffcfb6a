"""Defines the one type for the seconds of an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

PARTS = ("compute_s", "compress_s", "communicate_s")
FIELDS = (*PARTS, "hidden_s")
TIE = 1.02  # ours: times the fastest iteration, within which predicted ones count as equal
DILATED = "measured, dilated"  # the source of seconds from a lab in which time is dilated begins so


@dataclass(frozen=True)
class IterationTime:
    """Holds the seconds of one iteration on one rank, in the paper's three parts.

    `hidden_s` is how much of compress and communicate overlapped with the rest: `total` is the sum minus that.
    """

    compute_s: float
    compress_s: float
    communicate_s: float
    hidden_s: float = 0.0

    @property
    def total(self) -> float:
        return self.compute_s + self.compress_s + self.communicate_s - self.hidden_s

    @property
    def exposed_s(self) -> float:
        """Returns the seconds of exposed communication: those that an iteration waits for."""
        return self.communicate_s - self.hidden_s

    def speedup_over(self, dense: IterationTime) -> float:
        """Returns how many times as fast this is as an iteration of dense S-SGD that computes as long as this one."""
        return replace(dense, compute_s=self.compute_s).total / self.total

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> IterationTime:
        """Reads the times from a row of a table or a line of metrics.jsonl; without `hidden_s` nothing was hidden."""
        return cls(**{part: row[part] for part in PARTS}, hidden_s=row.get("hidden_s") or 0.0)

    def row(self) -> dict[str, float]:
        """Returns the seconds by their names in metrics.jsonl, summaries and tables."""
        return {name: getattr(self, name) for name in FIELDS}

    def parts(self) -> dict[str, float]:
        """Returns the row without `hidden_s`."""
        return {name: getattr(self, name) for name in PARTS}


def measured_source(dilation: float = 1.0, held: bool = False) -> str:
    """Returns how a table says that seconds were measured: as they are, or where time was dilated, or alpha held."""
    if dilation != 1:
        return f"{DILATED} {dilation:g} x" + ("" if held else ", latency not held")
    return "measured, alpha held" if held else "measured"


def is_measured(source: str) -> bool:
    return source.startswith("measured")


def is_dilated(source: str) -> bool:
    return source.startswith(DILATED)
