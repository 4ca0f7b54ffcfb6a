"""Finds the committed curves of a configuration, from which its time to an accuracy, or perplexity, is predicted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from repro.compression.pair_sizes import LOSSLESS
from repro.config.groups import title
from repro.config.schema import INCIDENTAL_OPTIONS, Config
from repro.report import summaries, time_to_target
from repro.report.as_published import OPTIONS
from repro.report.group import Group
from repro.report.moves import at_densities
from repro.report.time_to_target import Reach
from repro.screen import three
from repro.tables import Row
from repro.timing import predict

STEPPED = ("lr", "lr_warmup_epochs", "lr_drop_factor", "weight_decay", "momentum")  # numbers that all updates depend on


def trained() -> list[Group]:
    return time_to_target.trained(summaries.load())


def comparable(target: float, configs: Sequence[Config], groups: Sequence[Group]) -> list[Group]:
    """Returns the curves of any of `configs` on one schedule and one data, in one precision and of one P.

    The planned P and precision come first. Another may stand in for it, but then for all algorithms.
    """
    return time_to_target.comparable(of_any(configs, groups), target, configs[0].nodes, configs[0].precision)


def of_any(configs: Iterable[Config], groups: Sequence[Group]) -> list[Group]:
    """Returns the groups whose updates one of `configs` would make, each once."""
    return list({id(group): group for config in configs for group in of(config, groups)}.values())


def of(config: Config, groups: Sequence[Group]) -> list[Group]:
    """Returns the groups whose updates `config` would make, in any precision and on any number of nodes.

    All algorithms with the mean gradient share dense's.
    """
    exact = predict.relaxes(config.algo) == "exact"
    return [
        group
        for group in groups
        if group.model == config.model.name
        and inputs_alike(group.settings, config)
        and steps_alike(group.settings, config)
        and equal(group.settings.get("clip_grad") or 0.0, config.clip_grad)
        and (exact and group.algo == "dense" or same(group.settings, config))
    ]


def reach(target: float, config: Config, curves: Sequence[Group], others: Sequence[Group] = ()) -> Reach | None:
    """Returns when `config` reached the target in `curves`, which are comparable; None if there is no run.

    It is taken to need as many samples on any number of nodes. A run among `others`, on another schedule or other
    data, in another precision or of another P, tells only how accurate it was: its times are of another training.
    """
    own = of(config, curves)
    if not own:
        found = time_to_target.soonest(of(config, others), target)
        return found and dataclasses.replace(
            found, epochs=(), samples=(), within=None, elsewhere=_apart(found.group, curves[0])
        )
    return time_to_target.soonest(own, target)


def _apart(group: Group, compared: Group) -> str:
    """Says in what a run differs from one of the curves that are compared."""
    if time_to_target.schedule(group) != time_to_target.schedule(compared):
        return "on another schedule"
    if group.settings["precision"] != compared.settings["precision"]:
        return "in another precision"
    if group.data != compared.data:
        return f"on {title('data', group.data)}"
    return f"at P = {group.nodes}"


def seconds(
    group: Group, config: Config, samples: Iterable[float], iteration_s: float, warm_s: Mapping[float, float]
) -> list[float]:
    """Returns how long `config` takes for each number of samples, ascending, where those of `group` reached a target.

    An iteration takes `iteration_s`, and at a density of the run's warm-up what `warm_s` says.
    """
    step = config.samples_per_step
    return sorted(
        sum(part / step * warm_s.get(density, iteration_s) for density, part in at_densities(group, one).items())
        for one in samples
    )


def inputs_alike(settings: Row, config: Config) -> bool:
    """Returns whether a run with `settings` trained the same network on the same data; of what images, is its `data`.

    Numbers in a summary have six digits.
    """
    data, ours = settings["data"], config.data
    read = (data["name"], data["classes"], data["image_size"], data.get("sequence", 0))
    return (
        read == (ours.name, ours.classes, ours.image_size, ours.sequence)
        and equal(_decisive(data["options"]), _decisive(ours.options))
        and equal(settings["model"]["options"], config.model.options)
    )


def _decisive(options: Row) -> Row:
    return {name: value for name, value in options.items() if name not in INCIDENTAL_OPTIONS}


def equal(one: Any, other: Any) -> bool:
    """Compares values, or all of a list or of a dictionary, as far as a summary's six digits go."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-5)
    return bool(one == other)


def steps_alike(settings: Row, config: Config) -> bool:
    """Returns whether a node of both takes as many samples in a step, and applies an average gradient in the same way.

    Numbers in a summary have six digits.
    """
    return (
        settings["batch_per_node"] * settings["accumulate"] == config.batch
        and all(equal(settings[name], getattr(config, name)) for name in (*STEPPED, "lr_drops"))
        and settings.get("weight_decay_of", "all") == config.weight_decay_of
        and settings.get("lr_warmup_from", "nodes") == config.lr_warmup_from
    )


def same(settings: Row, config: Config) -> bool:
    """Returns whether a run with `settings` had the same algorithm as `config`, with all that changes its updates.

    Numbers in a summary have six digits.
    """
    algo = settings["algo"]
    return (
        algo["name"] == config.algo.name
        and equal(_but_seed(algo["options"], config), _but_seed(config.algo.options, config))
        and _rounding(algo.get("wire", "pairs")) == _rounding(config.algo.wire)
        and all(equal(algo.get(name, usual), getattr(config.algo, name)) for name, usual in OPTIONS.items())
        and equal(settings["density"], config.density)
        and equal(settings.get("density_warmup", config.density_warmup), config.density_warmup)
        and equal(settings.get("bucket_mb"), config.bucket_mb)
        and (config.bucket_mb is None or settings.get("scope", "global") == config.scope)
        and bool(settings.get("hierarchical")) == config.hierarchical
    )


def _but_seed(options: Row, config: Config) -> Row:
    """Returns the options without a seed that is the run's, as curves are of any."""
    return {name: value for name, value in options.items() if name != "seed" or not config.draws_by_seed}


def _rounding(wire: str) -> str:
    return "none" if wire in LOSSLESS else wire


def cell(found: Reach | None, times_s: Sequence[float], spread_s: Sequence[float] = ()) -> str:
    """Writes minutes to the target, with their range over seeds or within one run; a dash and the best if missed."""
    if found is None:
        return "– (no curve)"
    measure = found.group.metric
    if not times_s:
        return f"– (best {', '.join(filter(None, (measure.short(found.best), found.elsewhere, found.missed)))})"
    low, high = (each / 60 for each in spread_s)
    mean = sum(times_s) / len(times_s) / 60
    if low == high:
        return f"{three(mean)} (n = {found.n})"
    missed = time_to_target.MISSED_AT_ITS_END if found.within and not found.within.stays else ""
    return f"{three(mean)} ({three(low)} to {three(high)}{' within one run' if found.within else ''}{missed})"


def origin(target: float, found: Sequence[Reach | None], configs: Sequence[Config], groups: Sequence[Group]) -> str:
    """Says on which curves a ranking by the time to the target rests."""
    reaches = [one for one in found if one is not None]
    got = [one for one in reaches if one.samples]
    if not reaches:
        return (
            f"target={target:g}: no committed run of these has a curve of this model and data, with this lr, its "
            "schedule, weight_decay and batch_per_node; "
            f"type repro run experiment=convergence model={configs[0].model.name} nodes={configs[0].nodes}, then "
            "repro results collect"
        )
    if not got:
        return _missed(target, configs, groups)
    seeds = sorted({one.n for one in got})
    spread = "n = 1: one seed" if seeds == [1] else f"n = {', '.join(map(str, seeds))} seeds"
    short = ", ".join(dict.fromkeys(one.group.algo for one in got if one.left_out))
    spread += f"; seeds of {short} {time_to_target.TOO_SHORT} are left out" if short else ""
    spread += f"; ranges are over seeds, or, {time_to_target.WITHIN}"
    return (
        f"time to {target:g}: epochs of committed curves ({_training(got[0].group)}; {spread}) times "
        f"the predicted iteration; it is reached at {time_to_target.RULE}; as many samples are taken to "
        "be needed on any number of nodes, and an epoch is the least that can be told apart"
        + _contradicted(target, got[0].group, configs, groups)
    )


def _contradicted(target: float, curve: Group, configs: Sequence[Config], groups: Sequence[Group]) -> str:
    """Says how many times the samples committed runs needed on other P, where the plan is for another than the curves'.

    Those are the P on the planned side of that of `curve`: "" where there are none, or the plan is for it.
    """
    here, planned = curve.nodes, configs[0].nodes
    alike: dict[int, list[Group]] = {}
    for group in of_any(configs, groups):
        if _but_for_nodes(group) == _but_for_nodes(curve):
            alike.setdefault(group.nodes, []).append(group)
    there = [nodes for nodes in alike if (nodes > here) == (planned > here) and nodes != here]
    if planned == here or not there:
        return ""
    other = min(there, key=lambda nodes: abs(math.log(nodes / planned)))
    own = {(one.group.algo, one.group.settings["density"]): one for one in _reached(alike.get(here, []), target)}
    said = [
        f"{one.group.algo} needed {one.mean_samples / own[key].mean_samples:.1f} times as many"
        if one.samples
        else f"{one.group.algo} did not reach it"
        for one in time_to_target.of_each_algorithm(alike[other], target)
        if (key := (one.group.algo, one.group.settings["density"])) in own
    ]
    return f". Committed runs contradict that: from P = {here} to {other} {', '.join(said)}" if said else ""


def _reached(groups: Sequence[Group], target: float) -> list[Reach]:
    return [one for one in time_to_target.of_each_algorithm(groups, target) if one.samples]


def _but_for_nodes(group: Group) -> tuple[Any, ...]:
    return time_to_target.schedule(group), group.batch, *time_to_target.images_and_precision(group)


def _missed(target: float, configs: Sequence[Config], groups: Sequence[Group]) -> str:
    """Says that no curve that is compared reached the target, and which others did, or how near any came."""
    known = of_any(configs, groups)
    most = time_to_target.comparable(known, target)
    got = _reached(most, target)
    curves = comparable(target, configs, groups) if got else known
    first = max(time_to_target.reaches(curves, target), key=time_to_target.goodness)
    best = f"the best is {first.group.algo}, {_best(first)} ({_training(first.group)})"
    if not got:
        return f"target={target:g}: no committed run of these reached it; {best}"
    others = "; ".join(f"{one.group.algo}, {one.said()}" for one in got)
    return (
        f"target={target:g}: none of the curves that are compared reached it, so that all are ranked by the iteration; "
        f"{best}. Others did, which are not compared ({_training(most[0])}): {others}"
    )


def caution(target: float, found: Reach | None) -> str:
    """Says of the first of a ranking that its curve missed the target, or that it has none; "" if it got there."""
    if found is not None and found.samples:
        return ""
    unknown = f"the first of these is not known to reach {target:g} here"
    if found is None:
        return f"{unknown}: no committed run of it has a curve"
    there = "missed" if found.missed or not found.group.metric.reached(found.best, target) else "reached"
    return f"{unknown}: its own curve {there} it, best {_best(found)} ({_training(found.group)})"


def _best(found: Reach) -> str:
    return ", ".join(filter(None, (found.group.metric.short(found.best), found.missed)))


def _training(group: Group) -> str:
    """Says on what schedule and data, in what precision and of what P a run was: all that are compared are alike."""
    on = f"schedule of {time_to_target.schedule(group)}, {title('data', group.data)}"
    return f"{on}, {group.settings['precision']}, P = {group.nodes}"
