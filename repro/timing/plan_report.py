"""Tells a ranking of `planner`: its table, where the time of the first goes, its command, and all of it as JSON."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

from repro import screen
from repro.iteration_time import TIE
from repro.json_text import json_text
from repro.report.group import Group
from repro.screen import milliseconds
from repro.tables import Row
from repro.timing import other_settings, predict, to_target
from repro.timing.planner import Choice
from repro.whole_files import write_whole

SHOWN = 10


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
        typed = f"model={best.config.model.name} algo=dense,{best.config.algo.name} nodes={best.config.nodes}"
        told = f"how many more iterations it needs than dense is not in this: repro run experiment=convergence {typed}"
        lines.append(told)
    lines.append(
        f"network {wire.name}: {milliseconds(wire.alpha_s)} a message and {1e9 * wire.beta_s_per_byte:.3g} ns a byte"
    )
    if best.to_target_s is not None:
        level = sum(bool(c.spread_s) and c.spread_s[0] <= best.spread_s[1] for c in choices[1:])
        lines += [f"the times of {level} more may be as short, by their ranges: their order is not known"] * bool(level)
    near = sum(choice.seconds <= TIE * min(c.seconds for c in choices) for choice in choices)
    if best.to_target_s is None and near > 1:
        lines.append(
            f"{near} iterations within {TIE - 1:.0%} of the shortest count as equal: of these the one that relaxes the "
            "gradient least is first, and without buckets before with them"
        )
    return [*lines, origin(node)]


def of_target(choices: Sequence[Choice], target: float, groups: Sequence[Group]) -> list[str]:
    """Returns from which runs the epochs to the target are, which others have it, and what speaks against the best."""
    configs = [one.config for one in choices]
    said = [screen.sentence(to_target.origin(target, [one.reach for one in choices], configs, groups))]
    if named := other_settings.said(target, configs, groups):
        said += [screen.sentence(named[0]), *named[1:]]
    if caution := to_target.caution(target, choices[0].reach):
        said.append(screen.sentence(caution))
    return said


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
