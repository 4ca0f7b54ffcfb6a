"""Sums up what a rank sent since the last evaluation, and compares the ranks then."""

from __future__ import annotations

from repro.comm.collective import Collective
from repro.comm.traffic import Traffic


class Sent:
    """Counts this rank's bytes of several steps; a checkpoint keeps the count."""

    def __init__(self) -> None:
        self.steps, self.bytes = 0, 0

    def add(self, traffic: Traffic) -> None:
        self.steps += 1
        self.bytes += traffic.bytes_sent

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps, "bytes": self.bytes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps, self.bytes = int(state["steps"]), int(state["bytes"])

    def over_ranks(self, control: Collective) -> dict[str, float]:
        """Returns the mean over the ranks of their bytes in a mean step, and the most of any rank; starts anew.

        Collective.
        """
        means = control.gather_objects(self.bytes / max(1, self.steps))
        self.steps = self.bytes = 0
        return {"bytes_sent_mean_rank": sum(means) / len(means), "bytes_sent_worst_rank": max(means)}
