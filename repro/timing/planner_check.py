"""Measures the planner's choice and the other candidates on the lab's links (regret = choice / best)."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.cluster import ranks
from repro.cluster.ranks import Rank
from repro.comm import link_fit
from repro.comm.common_start import from_common_start
from repro.comm.traffic import Link, Round
from repro.config.schema import Config, ConfigError
from repro.iteration_time import IterationTime, is_measured
from repro.json_text import json_text
from repro.report.from_run_folders import MACHINE
from repro.report.group import rounded
from repro.runs import provenance
from repro.tables import Row
from repro.timing import before_run, candidates, node_profile, planner, predict, wire_replay
from repro.timing.planner import Choice
from repro.train import ending
from repro.train.loop import load_data
from repro.whole_files import replacing

if TYPE_CHECKING:
    from repro.data import Dataset

BUCKETS_MB = (None, 25.0)
FIRST = 3  # of the ranking are measured in any case, beside every algorithm without buckets
LINE_S = 0.05  # seconds on the line of the largest message, for beta
CASE = (  # of a config: what all candidates that are compared have alike
    "model", "data", "nodes", "batch_per_node", "accumulate", "network", "cluster", "precision", "device", "threads",
)  # fmt: skip
TRIPS = 10  # round trips of a small message, for alpha


def measure(configs: Sequence[Config], out: Path, say: Callable[[str], None]) -> None:
    """Launches the lab once per case of `configs`, whose algorithms are the candidates; writes `out`.

    Raises ConfigError, RunError.
    """
    for config in configs:
        if config.cluster.name != "lab":
            raise ConfigError(f"cluster={config.cluster.name}: repro bench regret needs cluster=lab.")
        if config.nodes == 1:
            raise ConfigError("nodes=1: one node sends nothing, so there is nothing to choose; type nodes=2 or more.")
    node_profile.check_nothing_stated(configs)
    node_profile.check_unstated(configs, "timed on this machine")
    split = cases(configs)
    machine = provenance.describe("cpu", "synthetic")
    report: dict[str, Any] = {"machine": {name: machine[name] for name in MACHINE}, "rows": []}
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as unfinished:  # the rows of the one before stay until all are there
        for case in split:
            row = ranks.launch(case[0], functools.partial(one_case, case), load_data)
            report["rows"].append(row)
            regrets = [done["regret"] for done in report["rows"]]
            report |= {"mean": statistics.fmean(regrets), "worst": max(regrets)}
            unfinished.write_text(json_text(rounded(report), indent=1) + "\n")
            say(
                f"{row['model']} on {row['nodes']} nodes at {row['bits_per_s'] / 1e9:g} Gbps: "
                f"chose {row['choice']}, best {row['best']}, regret {row['regret']:.3f}"
            )
    say(f"{out}: mean regret {report['mean']:.3f}, worst {report['worst']:.3f}")


def cases(configs: Sequence[Config]) -> list[list[Config]]:
    """Returns the candidates of each case: those for one network, data, batch and cluster. Raises ConfigError.

    Candidates are told apart by algorithm and wire format alone, so two of one name are refused.
    """
    found: dict[str, list[Config]] = {}
    for config in configs:
        about = {name: getattr(config, name) for name in CASE}
        found.setdefault(str(about), []).append(config)
    for case in found.values():
        if keys := ending.named_twice(case, [(config.algo.name, config.algo.wire) for config in case]):
            raise ConfigError(
                f"{', '.join(keys)}: candidates that differ in nothing else have one name in repro bench regret; "
                f"type one value of {', '.join(keys)}, and another --out for the next"
            )
    return list(found.values())


def one_case(configs: Sequence[Config], config: Config, rank: Rank, data: Dataset) -> Row | None:
    """Runs on each rank. The planner, on rank 0, gets the lab's alpha and beta as they are measured here."""
    wire = link(rank, config.network.bits_per_s)
    planned = plan(configs, wire) if rank.number == 0 else None  # the others sleep
    choices: list[Choice] = rank.control.gather_objects(planned)[0]
    lines = [before_run.before_a_run(choice.config, rank, data) for choice in choices]
    if rank.number:
        return None
    times = [IterationTime.of(next(line for line in each if is_measured(line["source"]))) for each in lines]
    compute_s = statistics.median(time.compute_s for time in times)  # one for all, so that its noise decides nothing
    names = [predict.label(choice.config) for choice in choices]
    seconds = [dataclasses.replace(time, compute_s=compute_s).total for time in times]
    measured = dict(zip(names, seconds, strict=True))
    best = min(measured, key=measured.__getitem__)
    return {
        "model": config.model.name, "nodes": rank.size, "batch_per_node": config.batch_per_node,
        "accumulate": config.accumulate, "bits_per_s": config.network.bits_per_s, **wire._asdict(),
        "choice": names[0], "choice_s": seconds[0], "best": best, "best_s": measured[best],
        "regret": seconds[0] / measured[best], "compute_s": compute_s, "measured_s": measured,
        "predicted_s": {name: choice.seconds for name, choice in zip(names, choices, strict=True)},
    }  # fmt: skip


def plan(configs: Sequence[Config], wire: Link) -> list[Choice]:
    """Returns the first FIRST of the ranking, then all others without buckets."""
    network = dataclasses.replace(configs[0].network, name="measured", **wire._asdict())
    on_network = [dataclasses.replace(config, network=network) for config in configs]
    ranked = planner.rank(candidates.allowed(on_network, "all", BUCKETS_MB), "measured", None, [])
    return [choice for place, choice in enumerate(ranked) if place < FIRST or choice.config.bucket_mb is None]


def link(rank: Rank, bits_per_s: float) -> Link:
    """Returns alpha and beta from messages there and back between ranks 0 and 1. Collective."""
    largest = int(bits_per_s / 8 * LINE_S)
    sizes, seconds = [64, largest // 4, largest // 2, largest], []
    for size in sizes:
        trips = TRIPS if size == sizes[0] else 1
        there, back = Round(1 - rank.number, size, None, 0), Round(None, 0, 1 - rank.number, size)
        rounds = {0: [there, back] * trips, 1: [back, there] * trips}.get(rank.number, [])
        play = wire_replay.play(rounds, rank.collective.transport)
        times = from_common_start(play, rank, 4)[1:]  # the first opens connections
        seconds.append(statistics.median(times) / (2 * trips * rank.dilation))
    line = link_fit.fit(sizes, seconds)
    return Link(line.alpha_s, line.beta_s_per_byte)
