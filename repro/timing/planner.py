"""Which algorithm, density and buckets to train with: every candidate's iteration is predicted, and ranked.

An iteration is compute and compress as timed here (or stated), and its own messages on the network's alpha and beta.
BAGUA (arXiv:2107.01499) leaves the choice to its user, and names that as its limit.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from repro import algorithms, predict, profiles, results
from repro.buckets import MB
from repro.config import Config, ConfigError
from repro.predict import RELAXES, Iteration
from repro.results import PARTS, Group
from repro.tables import Row, for_people, milliseconds

BUCKETS_MB: tuple[float | None, ...] = (None, 1.0, 4.0, 25.0)  # the last is PyTorch's
SHOWN = 10
TIE = 1.02  # ours: times the fastest iteration


@dataclass(frozen=True)
class Choice:
    """One candidate: what its iteration takes on the network, and a run to the target where one was trained."""

    iteration: Iteration
    parts: Row
    seconds: float
    to_target_s: float | None = None

    @property
    def config(self) -> Config:
        return self.iteration.config

    @property
    def keys(self) -> list[str]:
        """What a command line says to get it, besides the model, the nodes and the network."""
        config = self.config
        found = [f"algo={config.algo.name}"] + ([f"density={config.density:g}"] if config.algo.sparse else [])
        if config.bucket_mb is not None:
            found += [f"bucket_mb={config.bucket_mb:g}", "overlap=on"]
            found += ["scope=bucket"] if config.algo.sparse else []
        return found


def candidates(configs: Iterable[Config], relax: str, buckets_mb: Sequence[float | None] = BUCKETS_MB) -> list[Config]:
    """Of `configs` those that give up no more than `relax`, each in every size of bucket that it can have.

    With buckets a sparse algorithm selects from each; those whose messages depend on values stay whole, as all their
    ranks would have to be run for each bucket. Raises ConfigError.
    """
    if relax not in RELAXES:
        raise ConfigError(f"relax={relax}: choose one of {', '.join(RELAXES)}.")
    found = []
    for config in configs:
        sample = algorithms.load(config.algo, 8)
        if RELAXES.index(predict.relaxes(config.algo)) > RELAXES.index(relax):
            continue
        whole = algorithms.mixes(sample) or hasattr(sample, "wrap") or algorithms.messages_depend_on_values(sample)
        for size in buckets_mb:
            if size is None:
                found.append(dataclasses.replace(config, bucket_mb=None, overlap="off", scope="global"))
            elif not whole:
                scope: Literal["global", "bucket"] = "bucket" if config.algo.sparse else "global"
                found.append(dataclasses.replace(config, bucket_mb=size, overlap="on", scope=scope))
    if not found:
        raise ConfigError(f"relax={relax} leaves none of the algorithms asked for; type relax=all, or other algo=")
    return found


def rank(configs: Sequence[Config], node: str, target: float | None, groups: Sequence[Group]) -> list[Choice]:
    """The candidates, best first: by time to `target` where `groups` know it, then by their iterations.

    Of those that are within TIE of the fastest, the one that relaxes least comes first, and before its buckets: a
    prediction tells no finer. `node` is paper, measured or seconds, as `profiles.profile` reads it; without seconds of
    compress, each algorithm's is timed here. Candidates of one bucket are left out, as they are those without. Raises
    ConfigError.
    """
    shapes, wire = profiles.layers(configs[0]), configs[0].network
    moments = profiles.backward(node, configs[0])
    parameters = sum(map(math.prod, shapes))
    compress: dict[tuple[str, float], float] = {}
    found = []
    for config in configs:
        key = (config.algo.name, config.density)
        if config.bucket_mb is not None and 4 * parameters <= config.bucket_mb * MB:
            continue
        if key not in compress:
            stated = profiles.profile(node, config, parameters).compress_s if "+" in node else None
            compress[key] = profiles.compress(config, parameters, shapes) if stated is None else stated
        one = predict.iteration(config, shapes, moments, compress[key])
        if config.bucket_mb is not None and len(one.messages) == 1:
            continue
        parts = one.parts(wire.alpha_s, wire.beta_s_per_byte)
        seconds = results.iteration_s(parts)
        steps = None if target is None else steps_to(target, config, groups)
        found.append(Choice(one, parts, seconds, None if steps is None else steps * seconds))
    least = min(choice.seconds for choice in found)

    def order(choice: Choice) -> tuple[bool, float, bool, int, bool, float]:
        near = choice.seconds <= TIE * least
        simple = (RELAXES.index(predict.relaxes(choice.config.algo)), choice.config.bucket_mb is not None)
        to_target = choice.to_target_s
        return (to_target is None, to_target or 0.0, not near, *(simple if near else (0, False)), choice.seconds)

    return sorted(found, key=order)


def steps_to(target: float, config: Config, groups: Sequence[Group]) -> float | None:
    """Steps of `config` until the test accuracy was first at least `target`, by the runs that were trained.

    Samples count: a run on other numbers of nodes is taken to need as many. None where no run got there.
    """
    exact = predict.relaxes(config.algo) == "exact"
    found = []
    for group in groups:
        own = group.settings
        if group.model != config.model.name or not (exact and group.algo == "dense" or same(own, config)):
            continue
        batch = own["nodes"] * own["batch_per_node"] * own["accumulate"]
        reached = [row["step"] for row in group.curve if (row["test_accuracy"] or 0.0) >= target]
        found += [reached[0] * batch] if reached else []
    return min(found) / (config.nodes * config.batch_per_node * config.accumulate) if found else None


def same(settings: Row, config: Config) -> bool:
    """Whether a run with `settings` had the updates of `config`."""
    return (
        settings["algo"]["name"] == config.algo.name
        and settings["algo"]["options"] == config.algo.options
        and math.isclose(settings["density"], config.density)
        and settings.get("bucket_mb") == config.bucket_mb
    )


def threads(config: Config) -> None:
    """Compute and compress are timed with the threads that a rank would have."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)


def trained() -> list[Group]:
    """The committed convergence runs."""
    return [group for name, group in results.load().all_groups() if name.startswith("convergence")]


# What people read.


def rows(choices: Sequence[Choice]) -> list[dict[str, str]]:
    return [
        {
            "algorithm": predict.label(choice.config),
            "density": f"{choice.config.density:g}" if choice.config.algo.sparse else "-",
            "relaxes": predict.relaxes(choice.config.algo),
            "iteration": milliseconds(choice.seconds),
            **{part.removesuffix("_s"): milliseconds(choice.parts[part]) for part in (*PARTS, "hidden_s")},
            "to target": "-" if choice.to_target_s is None else f"{for_people(choice.to_target_s / 60)} min",
        }
        for choice in choices[:SHOWN]
    ]


def why(choices: Sequence[Choice]) -> list[str]:
    """A few lines: what the winner's iteration goes into, and what it is better than."""
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
    return lines


def _spent(choice: Choice) -> str:
    wire = choice.config.network
    parts = choice.parts
    open_s = parts["communicate_s"] - parts["hidden_s"]
    latency = min(open_s, choice.iteration.latency_s(wire.alpha_s))
    shares = {
        "compute": parts["compute_s"], "compress": parts["compress_s"], "latency": latency, "bytes": open_s - latency,
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
                "run": run_command(choice, given), "relaxes": predict.relaxes(choice.config.algo), **choice.parts,
                "iteration_s": choice.seconds, "to_target_s": choice.to_target_s,
            }
            for choice in choices
        ],
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")


def run_command(choice: Choice, given: Sequence[str]) -> str:
    return " ".join(["repro run", *given, *choice.keys])
