"""What runs that differ only in seed have in common: their settings, curve, traffic and times. Needs no torch."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from repro import metric
from repro.comm.traffic import HEADERS_BYTES
from repro.iteration_time import IterationTime, is_measured
from repro.metric import Metric
from repro.report import same_machine
from repro.tables import Row


@dataclass(frozen=True)
class Group:
    """Holds finished runs on the same data that differ only in seed.

    Times are in seconds; the words are those of docs/design.md.
    """

    settings: dict[str, Any]  # the resolved configuration without the seed
    data: str  # where the images came from, as the figures say it
    seeds: list[int]
    runs: list[str]
    machine: dict[str, Any]  # versions, processor and commit of one run: that of `machine_seed`, or of the first
    curve: list[Row]  # one row an epoch: epoch, step, and mean and std over the seeds
    per_step: Row  # the usual step's counted traffic of rank 0, its range, and the busiest rank's: `per_step.counted`
    iteration_time: list[Row]  # source, network, nodes, compute_s, compress_s, communicate_s, hidden_s
    recorded: list[dict[str, Any]] = field(default_factory=list)  # what `probe_steps` recorded, of the first seed
    fingerprint: str = ""  # of the data, see data.Content; "" = generated, or an old run
    seed_accuracies: list[list[float]] = field(default_factory=list)  # or perplexities, of several seeds: each one's
    timed_runs: int | None = None  # of which `iteration_time` is the middle one; None = of all, as in old summaries
    seed_rates: list[Row] = field(default_factory=list)  # of each run that has it: seed, samples_per_s, processor
    machine_seed: int | None = None  # where seeds came together that were collected apart

    @property
    def model(self) -> str:
        return self.settings["model"]["name"]

    @property
    def algo(self) -> str:
        return self.settings["algo"]["name"]

    @property
    def nodes(self) -> int:
        return self.settings["nodes"]

    @property
    def batch(self) -> int:
        """Returns the samples of a step on one node."""
        batch: int = self.settings["batch_per_node"] * self.settings["accumulate"]
        return batch

    @property
    def encoded(self) -> bool:
        """Returns whether the images were encoded once more, as JPEG."""
        return "JPEG" in self.data

    @property
    def metric(self) -> Metric:
        return metric.of(self.settings["data"])

    @property
    def n(self) -> int:
        return len(self.seeds)

    @property
    def timed_n(self) -> int:
        return self.n if self.timed_runs is None else self.timed_runs

    @property
    def epochs(self) -> float:
        return self.curve[-1]["epoch"] if self.curve else 0

    def at(self, epoch: float) -> Row:
        """Returns the curve's row of an epoch that has been evaluated."""
        return next(row for row in self.curve if row["epoch"] == epoch)

    @property
    def compressed(self) -> bool:
        """Returns whether the authors' schedule was compressed, or stretched, to the epochs of this run."""
        return self.settings["scale_schedule"] and self.settings["epochs"] != self.settings["schedule_epochs"]

    @property
    def whole(self) -> bool:
        """Returns whether the run has all epochs of the schedule as it is written."""
        full = self.settings["epochs"] >= self.settings["schedule_epochs"]
        return full and self.settings["steps"] is None and not self.compressed

    @property
    def schedule(self) -> str:
        """Returns how much of the authors' schedule this run has, and whether it was compressed."""
        epochs, full, steps = (self.settings[name] for name in ("epochs", "schedule_epochs", "steps"))
        if self.compressed:
            beginning = "" if steps is None else f"first {steps} steps of the "
            return f"{beginning}schedule of {full} epochs compressed to {epochs}"
        if self.whole:
            return f"{epochs} epochs"
        return f"first {epochs} of {full} epochs" if steps is None else f"first {steps} steps of {full} epochs"

    @property
    def busiest_bytes(self) -> float | None:
        """Returns the bytes that the busiest rank sends in a step; where that was not counted, rank 0's.

        Ranks are compared over the steps between evaluations, rank 0 is counted in all: so that has at least its own.
        """
        known = [self.per_step.get(name) for name in ("bytes_sent_worst_rank", "bytes_sent")]
        return max((value for value in known if value is not None), default=None)

    @property
    def socket_bytes(self) -> float | None:
        """Returns the bytes of a step with gloo's headers; in older summaries as if an all-reduce had P messages."""
        sent, messages = self.per_step.get("bytes_sent"), self.per_step.get("messages") or 0
        return None if sent is None else sent + self.per_step.get("framing", HEADERS_BYTES * messages)

    @property
    def timed(self) -> Row | None:
        """Returns the iteration time on the chosen network: measured where that was possible, else modelled."""
        return min(self.iteration_time, key=lambda row: not is_measured(row["source"]), default=None)

    @property
    def time(self) -> IterationTime | None:
        return IterationTime.of(self.timed) if self.timed else None


def alike(groups: Sequence[Group]) -> list[Group]:
    """Gives runs that compute the same on one machine their median compute, so that its noise ranks no algorithm.

    Measured seconds that were hidden behind compute stay with it. Modelled ones are less in proportion behind less.
    """
    same: dict[str, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        same[_compute(group)].append(place)
    found = list(groups)
    for places in same.values():
        kinds = same_machine.kinds([groups[place].machine for place in places])
        for kind in set(kinds):
            ours = [place for place, other in zip(places, kinds, strict=True) if other == kind]
            median = statistics.median(
                [t["compute_s"] for place in ours for t in groups[place].iteration_time] or [0.0]
            )
            for place in ours:
                times = [_with_compute(time, median) for time in groups[place].iteration_time]
                found[place] = dataclasses.replace(groups[place], iteration_time=times)
    return found


def _with_compute(time: Row, compute_s: float) -> Row:
    hidden_s = time.get("hidden_s")
    if not hidden_s:
        return time | {"compute_s": compute_s}
    if is_measured(time["source"]):
        return time
    return time | {"compute_s": compute_s, "hidden_s": hidden_s * min(1.0, compute_s / time["compute_s"])}


def _compute(group: Group) -> str:
    """Returns a key of all that the compute seconds of a rank depend on, besides the machine."""
    settings, machine = group.settings, group.machine
    threads = settings["threads"] or max(1, (machine.get("cpus") or 1) // group.nodes)
    size, stated = settings["data"]["image_size"], (settings.get("compute_s"), settings.get("node"))
    size = size or (settings["data"]["sequence"], settings["data"]["classes"])
    part = (settings.get("stages", 1), settings.get("cuts", []))  # of the network, that a rank has
    network = settings["model"]["name"], settings["model"].get("options", {})  # other keys are new since
    return str((network, part, group.batch, size, settings["precision"], threads, stated))


def rounded(value: Any) -> Any:
    """Rounds a summary's numbers to six significant digits, so that a change of one bit does not change a file."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list | tuple) else value
