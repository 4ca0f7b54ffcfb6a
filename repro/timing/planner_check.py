"""The planner held to its word: its choice and the other candidates on the lab's links (regret = choice / best)."""

from __future__ import annotations

import dataclasses
import functools
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro import fit, iteration, planner, predict, provenance, ranks, rehearsal
from repro.config import Config, ConfigError
from repro.network import Link, Round
from repro.planner import Choice
from repro.ranks import Rank
from repro.results import MACHINE, iteration_s, rounded
from repro.tables import Row
from repro.training import load_data

if TYPE_CHECKING:
    from repro.data import Dataset

BUCKETS_MB = (None, 25.0)
FIRST = 3  # of the ranking are measured whatever they are, beside every algorithm as it is
LINE_S = 0.05  # of the largest message that beta is taken from
TRIPS = 10  # of a small message, for alpha


def measure(configs: Sequence[Config], out: Path, say: Callable[[str], None]) -> None:
    """One launch of the lab for each model and network of `configs`, whose algorithms are the candidates; writes `out`.

    Raises ConfigError, RunError.
    """
    cases: dict[tuple[str, float], list[Config]] = {}
    for config in configs:
        if config.cluster.name != "lab":
            raise ConfigError(f"cluster={config.cluster.name}: repro bench regret needs cluster=lab.")
        cases.setdefault((config.model.name, config.network.bits_per_s), []).append(config)
    machine = provenance.describe("cpu", "synthetic")
    report: dict[str, Any] = {"machine": {name: machine[name] for name in MACHINE}, "rows": []}
    for own in cases.values():
        row = ranks.launch(own[0], functools.partial(one_case, own), load_data)
        report["rows"].append(row)
        regrets = [done["regret"] for done in report["rows"]]
        report |= {"mean": statistics.fmean(regrets), "worst": max(regrets)}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(rounded(report), indent=1) + "\n")
        say(
            f"{row['model']} at {row['bits_per_s'] / 1e9:g} Gbps: chose {row['choice']}, best {row['best']}, "
            f"regret {row['regret']:.3f}"
        )
    say(f"{out}: mean regret {report['mean']:.3f}, worst {report['worst']:.3f}")


def one_case(configs: Sequence[Config], config: Config, rank: Rank, data: Dataset) -> Row | None:
    """On each rank. The planner, on rank 0, knows the lab's alpha and beta as they are measured here."""
    wire = link(rank, config.network.bits_per_s)
    found = plan(configs, wire) if rank.rank == 0 else None  # the others sleep
    choices: list[Choice] = rank.control.gather_objects(found)[0]
    lines = [iteration.before_a_run(choice.config, rank, data) for choice in choices]
    if rank.rank:
        return None
    taken = [next(line for line in each if line["source"] == "measured") for each in lines]
    compute_s = statistics.median(line["compute_s"] for line in taken)  # one for all: its noise decides nothing
    names = [predict.label(choice.config) for choice in choices]
    seconds = [iteration_s(line | {"compute_s": compute_s}) for line in taken]
    measured = dict(zip(names, seconds, strict=True))
    best = min(measured, key=measured.__getitem__)
    return {
        "model": config.model.name, "nodes": rank.size, "bits_per_s": config.network.bits_per_s, **wire._asdict(),
        "choice": names[0], "choice_s": seconds[0], "best": best, "best_s": measured[best],
        "regret": seconds[0] / measured[best], "compute_s": compute_s, "measured_s": measured,
        "predicted_s": {name: choice.seconds for name, choice in zip(names, choices, strict=True)},
    }  # fmt: skip


def plan(configs: Sequence[Config], wire: Link) -> list[Choice]:
    """The first of the ranking, then those that are measured beside it: every algorithm without buckets among them."""
    network = dataclasses.replace(configs[0].network, name="measured", **wire._asdict())
    own = [dataclasses.replace(config, network=network) for config in configs]
    ranked = planner.rank(planner.candidates(own, "all", BUCKETS_MB), "measured", None, [])
    return [choice for place, choice in enumerate(ranked) if place < FIRST or choice.config.bucket_mb is None]


def link(rank: Rank, bits_per_s: float) -> Link:
    """Alpha and beta by messages there and back between ranks 0 and 1. Collective."""
    largest = int(bits_per_s / 8 * LINE_S)
    sizes, seconds = [64, largest // 4, largest // 2, largest], []
    for size in sizes:
        trips = TRIPS if size == sizes[0] else 1
        there, back = Round(1 - rank.rank, size, None, 0), Round(None, 0, 1 - rank.rank, size)
        own = {0: [there, back] * trips, 1: [back, there] * trips}.get(rank.rank, [])
        play = rehearsal.play(own, rank.collective.transport)
        taken = rehearsal.time_together(play, rank.control, 4)[1:]  # the first opens connections
        seconds.append(statistics.median(taken) / (2 * trips))
    found = fit.fit(sizes, seconds)
    return Link(found.alpha_s, found.beta_s_per_byte)
