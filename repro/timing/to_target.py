"""Finds the committed curves of a configuration, from which its time to an accuracy, or perplexity, is predicted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from repro.compression.pair_sizes import LOSSLESS
from repro.config.schema import Config
from repro.report import summaries, time_to_target
from repro.report.summaries import Group
from repro.report.time_to_target import Reach
from repro.screen import three
from repro.tables import Row
from repro.timing import predict

UNCORRECTED = {"correction": 0.0, "clip": 0.0, "boost": 1.0, "mask": "none"}  # what older summaries do not say


def trained() -> list[Group]:
    return time_to_target.trained(summaries.load())


def comparable(target: float, configs: Iterable[Config], groups: Sequence[Group]) -> list[Group]:
    """Returns the curves of any of `configs` that were made on one schedule: the one where most reached the target."""
    known = {id(group): group for config in configs for group in of(config, groups)}
    return time_to_target.of_one_schedule(known.values(), target)


def of(config: Config, groups: Sequence[Group]) -> list[Group]:
    """Returns the groups whose updates `config` would make. All algorithms with the mean gradient share dense's."""
    exact = predict.relaxes(config.algo) == "exact"
    return [
        group
        for group in groups
        if group.model == config.model.name
        and group.settings["data"]["name"] == config.data.name
        and group.settings["momentum"] == config.momentum
        and (exact and group.algo == "dense" or same(group.settings, config))
    ]


def reach(target: float, config: Config, curves: Sequence[Group], others: Sequence[Group] = ()) -> Reach | None:
    """Returns when `config` reached the target in the best of its runs; None if there is no run.

    Of those runs, ones with as many nodes come first; else it is taken to need as many samples on any number. A run
    among `others`, on another schedule, tells only how accurate it was: its times are of another training.
    """
    own = of(config, curves)
    if not own:
        elsewhere = time_to_target.soonest(of(config, others), target)
        return elsewhere and dataclasses.replace(elsewhere, epochs=(), samples=(), elsewhere=bool(elsewhere.samples))
    return time_to_target.soonest([g for g in own if g.nodes == config.nodes] or own, target)


def steps(found: Reach, config: Config) -> list[float]:
    """Returns the steps in which `config` takes as many samples as each seed did, from the fewest to the most."""
    batch = config.nodes * config.batch_per_node * config.accumulate
    return sorted(samples / batch for samples in found.samples)


def same(settings: Row, config: Config) -> bool:
    """Returns whether a run with `settings` had the same algorithm as `config`, with all that changes its updates."""
    algo = settings["algo"]
    return (
        algo["name"] == config.algo.name
        and algo["options"] == config.algo.options
        and _rounding(algo.get("wire", "pairs")) == _rounding(config.algo.wire)
        and all(algo.get(name, plain) == getattr(config.algo, name) for name, plain in UNCORRECTED.items())
        and math.isclose(settings["density"], config.density)
        and settings.get("bucket_mb") == config.bucket_mb
    )


def _rounding(wire: str) -> str:
    return "none" if wire in LOSSLESS else wire


def cell(found: Reach | None, times_s: Sequence[float]) -> str:
    """Writes minutes to the target, with their range over seeds; a dash and the best value where it was missed."""
    if found is None:
        return "– (no curve)"
    measure = found.group.metric
    if not times_s:
        some = measure.reached(found.best, found.target)
        why = " on another schedule" if found.elsewhere else " not by all seeds" if some else ""
        return f"– (best {measure.short(found.best)}{',' * bool(why)}{why})"
    low, high, mean = (seconds / 60 for seconds in (times_s[0], times_s[-1], sum(times_s) / len(times_s)))
    spread = f"n = {found.group.n}" if low == high else f"{three(low)} to {three(high)}"
    return f"{three(mean)} ({spread})"


def origin(target: float, found: Sequence[Reach | None]) -> str:
    """Says on which curves a ranking by the time to the target rests."""
    reaches = [one for one in found if one is not None]
    got = [one for one in reaches if one.samples]
    if not reaches:
        return (
            f"target={target:g}: no committed run of these has a curve of this model and data; "
            "type repro run experiment=convergence, then repro results collect"
        )
    if not got:
        first = max(reaches, key=time_to_target.goodness)
        return (
            f"target={target:g}: no committed run of these reached it; the best is {first.group.algo}, "
            f"{first.group.metric.short(first.best)} (schedule of {time_to_target.schedule(first.group)})"
        )
    nodes = ", ".join(map(str, sorted({one.group.nodes for one in got})))
    seeds = sorted({one.group.n for one in got})
    spread = "n = 1: one seed, so no spread is known" if seeds == [1] else f"n = {', '.join(map(str, seeds))} seeds"
    return (
        f"time to {target:g}: epochs of committed curves (schedule of {time_to_target.schedule(got[0].group)}, "
        f"P = {nodes}; {spread}) times the predicted iteration; as many samples are taken to be needed on any number "
        "of nodes, and an epoch is the least that can be told apart"
    )
