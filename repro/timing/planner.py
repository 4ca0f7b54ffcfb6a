"""Chooses algorithm, density and buckets to train with: it predicts the iteration of every candidate, and ranks them.

An iteration is compute and compress as timed here (or stated), and its own messages on the network's alpha and beta.
BAGUA (arXiv:2107.01499) leaves the choice to its user, and names that as its limit.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import shlex
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from repro import algorithms, screen
from repro.comm.bucket_spans import MB
from repro.config.schema import Config, ConfigError
from repro.iteration_time import IterationTime
from repro.json_text import json_text
from repro.report.group import Group
from repro.report.time_to_target import Reach
from repro.screen import milliseconds
from repro.tables import Row
from repro.timing import node_profile, predict, stand_ins, to_target
from repro.timing.predict import RELAXES, Iteration
from repro.train import combinations, ending
from repro.waiting import track
from repro.whole_files import write_whole

BUCKETS_MB: tuple[float | None, ...] = (None, 1.0, 4.0, 25.0)  # the last is PyTorch's
SHOWN = 10
TIE = 1.02  # ours: times the fastest iteration


@dataclass(frozen=True)
class Choice:
    """Holds one candidate, its iteration on the network, and when a committed run of it reached the target.

    `warm_s` has the seconds of an iteration at each density of that run's warm-up.
    """

    iteration: Iteration
    time: IterationTime
    reach: Reach | None = None
    warm_s: dict[float, float] = field(default_factory=dict)

    def _training_s(self, samples: Iterable[float]) -> list[float]:
        if self.reach is None:
            return []
        return to_target.seconds(self.reach.group, self.config, samples, self.seconds, self.warm_s)

    @property
    def times_to_target_s(self) -> list[float]:
        """Returns the seconds to the target by each seed's curve, ascending; none where they did not get there."""
        return self._training_s(self.reach.samples if self.reach else ())

    @property
    def spread_s(self) -> list[float]:
        """Returns the least and the most seconds to the target, over seeds or within one run."""
        return self._training_s(self.reach.spread if self.reach and self.reach.samples else ())

    @property
    def to_target_s(self) -> float | None:
        return statistics.fmean(self.times_to_target_s) if self.times_to_target_s else None

    @property
    def seconds(self) -> float:
        return self.time.total

    @property
    def config(self) -> Config:
        return self.iteration.config

    @property
    def keys(self) -> list[str]:
        """Returns the command-line settings that select it, besides the model, the nodes and the network."""
        config = self.config
        found = [f"algo={config.algo.name}"]
        found += [f"density={ending.cell(config.density)}"] if config.algo.sparse else []
        found += [f"algo.wire={config.algo.wire}"] if config.algo.wire != "pairs" else []
        if config.bucket_mb is not None:
            found += [f"bucket_mb={ending.cell(config.bucket_mb)}", "overlap=on"]
            found += ["scope=bucket"] if config.algo.sparse else []
        return found


def candidates(
    configs: Iterable[Config],
    relax: str,
    buckets_mb: Sequence[float | None] = BUCKETS_MB,
    wires: Sequence[str] | None = None,
) -> list[Config]:
    """Returns those of `configs` that relax no more than `relax`, with every wire and bucket size that they allow.

    Without `wires` each keeps its own. With buckets a sparse algorithm selects from each. Algorithms whose messages
    depend on values get no buckets, because all their ranks would have to run for each bucket. Raises ConfigError.
    """
    if relax not in RELAXES:
        raise ConfigError(f"relax={relax}: choose one of {', '.join(RELAXES)}.")
    found, refused, unbucketed = list[Config](), list[Config](), list[str]()
    for config in itertools.chain.from_iterable(with_wires(config, wires) for config in configs):
        if not stand_ins.allows(config.algo, config.nodes):
            refused.append(config)
            continue
        if RELAXES.index(predict.relaxes(config.algo)) > RELAXES.index(relax):
            continue
        for size in buckets_mb:
            if size is None:
                (found if combinations.allows(_whole(config)) else refused).append(_whole(config))
                continue
            scope: Literal["global", "bucket"] = "bucket" if config.algo.sparse else "global"
            bucketed = dataclasses.replace(config, bucket_mb=size, overlap="on", scope=scope)
            if not combinations.allows(bucketed):
                refused.append(bucketed)
            elif algorithms.of(config.algo).messages_depend_on_values:
                unbucketed.append(config.algo.name)
            else:
                found.append(bucketed)
    if not found and refused:
        stand_ins.check_ranks(refused[0].algo, refused[0].nodes)
        combinations.check(refused[0])
    if not found and unbucketed:
        raise ConfigError(
            f"algo={unbucketed[0]}: its messages depend on values, and get no buckets; type bucket_mb=null"
        )
    if not found:
        raise ConfigError(f"relax={relax} leaves none of the algorithms asked for; type relax=all, or other algo=")
    return found


def left_out(configs: Iterable[Config]) -> list[str]:
    """Returns a line for each algorithm that is refused also without buckets, with the reason."""
    lines = {}
    for config in configs:
        why = "as it would not train"
        try:
            combinations.check(_whole(config))
            why = "as its messages cannot be predicted"
            stand_ins.check_ranks(config.algo, config.nodes)
        except ConfigError as error:
            lines[config.algo.name] = f"Left out: {config.algo.name}, {why}. {error}"
    return list(lines.values())


def _whole(config: Config) -> Config:
    return dataclasses.replace(config, bucket_mb=None, overlap="off", scope="global")


def with_wires(config: Config, wires: Sequence[str] | None) -> list[Config]:
    """Returns `config` with each of the wire formats, if it sends pairs. Raises ConfigError."""
    if wires is None:
        return [config]
    formats = [dataclasses.replace(config.algo, wire=wire) for wire in wires]  # type: ignore[arg-type]  # it checks
    if not algorithms.of(config.algo).sends_pairs:
        return [config]
    return [dataclasses.replace(config, algo=algo) for algo in formats]


def rank(configs: Sequence[Config], node: str, target: float | None, groups: Sequence[Group]) -> list[Choice]:
    """Ranks the candidates, best first: by time to `target` where `groups` of one schedule know it, then by iteration.

    Among those within TIE of the fastest, the one that relaxes least comes first, without buckets before with them, and
    plain pairs before codes: a prediction is no more precise. `node` is paper, measured or seconds, as
    `node_profile.profile` reads it; without seconds of compress, each algorithm's is timed here. Candidates with only
    one bucket are left out, because they equal those without. Raises ConfigError.
    """
    node_profile.check_unstated(configs, "node=")
    shapes, wire = node_profile.layers(configs[0]), configs[0].network
    moments = node_profile.backward(node, configs[0])
    parameters = sum(map(math.prod, shapes))
    compress: dict[tuple[str, str, float], float] = {}
    curves = [] if target is None else to_target.comparable(target, configs, groups)
    found = []
    for config in track(configs, f"predicting {screen.plural(len(configs), 'candidate')}", len(configs)):
        key = (config.algo.name, config.algo.wire, config.density)
        if config.bucket_mb is not None and 4 * parameters <= config.bucket_mb * MB:
            continue
        if key not in compress:
            compress[key] = node_profile.stated_or_timed(node, config, parameters, shapes)
        one = predict.iteration(config, shapes, moments, compress[key])
        if config.bucket_mb is not None and len(one.messages) == 1:
            continue
        time = one.parts(wire.alpha_s, wire.beta_s_per_byte)
        reach = None if target is None else to_target.reach(target, config, curves, groups)
        warm_s = {}
        for density in reach.group.settings["density_warmup"] if reach and reach.samples else ():
            warm = predict.iteration(dataclasses.replace(config, density=density), shapes, moments, compress[key])
            warm_s[density] = warm.seconds(wire.alpha_s, wire.beta_s_per_byte)
        found.append(Choice(one, time, reach, warm_s))
    if not found:
        sizes = ",".join(dict.fromkeys(f"{config.bucket_mb:g}" for config in configs if config.bucket_mb is not None))
        raise ConfigError(
            f"bucket_mb={sizes}: the gradient of {configs[0].model.name}, {4 * parameters / MB:.3g} MB, is one bucket "
            f"of such a size; type bucket_mb=null,{sizes} to rank it whole, or smaller sizes"
        )
    least = min(choice.seconds for choice in found)

    def order(choice: Choice) -> tuple[bool, float, bool, tuple[int, bool, bool], float]:
        near, config, aimed = choice.seconds <= TIE * least, choice.config, choice.to_target_s
        simple = (
            RELAXES.index(predict.relaxes(config.algo)),
            config.bucket_mb is not None,
            config.algo.wire != "pairs",
        )
        return aimed is None, aimed or 0.0, not near, simple if near else (0, False, False), choice.seconds

    return sorted(found, key=order)


# What people read.


def rows(choices: Sequence[Choice]) -> list[Row]:
    """Returns the cells of the table; times to the target only where a committed run has a curve."""
    aimed = any(choice.reach is not None for choice in choices)
    return screen.filled([
        {
            "algorithm": predict.label(choice.config),
            "density": f"{choice.config.density:g}" if choice.config.algo.sparse else "",
            "relaxes": predict.relaxes(choice.config.algo),
            "iteration (ms)": screen.ms(choice.seconds),
            **{f"{name.removesuffix('_s')} (ms)": screen.ms(seconds) for name, seconds in choice.time.row().items()},
            "to target (min)": _to_target(choice) if aimed else None,
        }
        for choice in choices[:SHOWN]
    ])  # fmt: skip


def _to_target(choice: Choice) -> str:
    return to_target.cell(choice.reach, choice.times_to_target_s, choice.spread_s)


def why(choices: Sequence[Choice], node: str) -> list[str]:
    """Explains where the winner's iteration time goes, what it is better than, and what the order rests on."""
    best, wire = choices[0], choices[0].config.network
    lines = [f"{predict.label(best.config)}: {_spent(best)}"]
    dense = next((c for c in choices if predict.label(c.config) == "dense"), None)
    if dense is not None and dense is not best:
        lines.append(f"dense: {_spent(dense)}; the first is {dense.seconds / best.seconds:.2f} times as fast")
    exact = next((c for c in choices if predict.relaxes(c.config.algo) == "exact"), None)
    if exact is not None and exact not in (best, dense):
        times = f"{exact.seconds / best.seconds:.2f} times the iteration"
        lines.append(f"without relaxing the gradient: {predict.label(exact.config)}, {times}")
    if best.to_target_s is None and predict.relaxes(best.config.algo) != "exact":
        lines.append("how many more iterations it needs than dense is not in this: repro run experiment=convergence")
    lines.append(
        f"network {wire.name}: {milliseconds(wire.alpha_s)} a message and {1e9 * wire.beta_s_per_byte:.3g} ns a byte"
    )
    near = sum(choice.seconds <= TIE * min(c.seconds for c in choices) for choice in choices)
    if best.to_target_s is None and near > 1:
        lines.append(
            f"{near} iterations within {TIE - 1:.0%} of the shortest count as equal: of these the one that relaxes the "
            "gradient least is first, and without buckets before with them"
        )
    return [*lines, origin(node)]


def origin(node: str) -> str:
    """Returns where the seconds of compute and of compress come from, `node` being paper, measured or seconds."""
    if node == "measured":
        return "compute and compress: both timed on this machine"
    if "+" in node:
        return "compute and compress: both stated, compress for every algorithm that compresses"
    compute = "published, of a P102-100" if node == "paper" else "stated"
    return (
        f"compute is {compute}, compress is timed on this machine: a mixture of two machines. "
        "node=measured times both here, node=0.14+0.02 states both"
    )


def _spent(choice: Choice) -> str:
    wire, time = choice.config.network, choice.time
    latency = min(time.exposed_s, choice.iteration.latency_s(wire.alpha_s))
    shares = {
        "compute": time.compute_s, "compress": time.compress_s, "latency": latency, "bytes": time.exposed_s - latency,
    }  # fmt: skip
    most = max(shares, key=shares.__getitem__)
    said = ", ".join(f"{name} {share / choice.seconds:.0%}" for name, share in shares.items())
    return f"{milliseconds(choice.seconds)} an iteration, most of it {most} ({said})"


def write(choices: Sequence[Choice], node: str, given: Sequence[str], out: Path) -> None:
    first = choices[0].config
    report = {
        "node": node, "model": first.model.name, "nodes": first.nodes,
        "network": dataclasses.asdict(first.network),
        "ranked": [
            {
                "run": run_command(choice, given), "relaxes": predict.relaxes(choice.config.algo), **choice.time.row(),
                "iteration_s": choice.seconds, "to_target_s": choice.to_target_s,
                "to_target_by_seed_s": choice.times_to_target_s,
                "curve": None if choice.reach is None else choice.reach.said(),
            }
            for choice in choices
        ],
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, json_text(report, indent=1) + "\n")


def run_command(choice: Choice, given: Sequence[str]) -> str:
    return shlex.join(["repro", "run", *given, *choice.keys])
