"""Sums up what a rank sent since the last evaluation at one density, and compares the ranks then."""

from __future__ import annotations

from repro.comm.collective import Collective
from repro.comm.traffic import Traffic


class Sent:
    """Counts this rank's bytes of several steps of one density; a checkpoint keeps the count."""

    def __init__(self) -> None:
        self.steps, self.bytes, self.density = 0, 0, 0.0

    def add(self, traffic: Traffic, density: float) -> None:
        """Counts a step; begins anew at another density, as what a step sends then is something else."""
        if density != self.density:
            self.steps, self.bytes, self.density = 0, 0, density
        self.steps += 1
        self.bytes += traffic.bytes_sent

    def state_dict(self) -> dict[str, float]:
        return {"steps": self.steps, "bytes": self.bytes, "density": self.density}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Takes the count of a checkpoint; one of before does not say its density, and is as if there were none."""
        self.steps, self.bytes, self.density = int(state["steps"]), int(state["bytes"]), state.get("density", 0.0)

    def over_ranks(self, control: Collective) -> dict[str, float]:
        """Returns the mean over the ranks of their bytes in a mean step, and the most of any rank; starts anew.

        Collective.
        """
        means = control.gather_objects(self.bytes / max(1, self.steps))
        self.steps = self.bytes = 0
        return {"bytes_sent_mean_rank": sum(means) / len(means), "bytes_sent_worst_rank": max(means)}
