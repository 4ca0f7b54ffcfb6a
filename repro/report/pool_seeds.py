"""Pools summaries of other seeds, taken at another time or on another machine, with the existing ones.

A group's mean, sample deviation and n suffice to pool it (Chan et al., 1979). Each seed's accuracies are kept where
both summaries have them; old summaries of several seeds do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from itertools import compress

from repro import metric
from repro.config.schema import ConfigError
from repro.report import same_machine
from repro.report.curves import middle
from repro.report.group import rounded
from repro.report.same_settings import GroupJson, Summary, identity, same_data, went_on
from repro.tables import Row


def pool(there: Summary, new: Summary, refused: Callable[[str], object]) -> Summary:
    """Returns a summary with the groups of both: new seeds join a setting's old ones, or replace them if all ran again.

    Seeds of other data, or that were evaluated at other epochs, make a group of their own: a common curve would lose
    evaluations. A run that had stopped, and went on, replaces its shorter group. A group whose seeds ran again in
    part stays as it was, as a mean cannot be taken apart; `refused` is told why.
    """
    groups = [group for group in there["groups"] if not went_on(group, new)]
    for group in new["groups"]:
        same = [one for one in groups if identity(one) == identity(group) and same_data(one, group)]
        replaced = {id(one) for one in same if set(one["seeds"]) <= set(group["seeds"])}
        joined = next((one for one in same if id(one) not in replaced and _epochs(one) == _epochs(group)), None)
        try:
            pooled = group if joined is None else of_both(joined, group)
        except ConfigError as error:
            refused(str(error))
            continue
        groups = [one for one in groups if id(one) not in {*replaced, id(joined)}] + [pooled]
    return {**new, "groups": sorted(groups, key=identity)}


def _epochs(group: GroupJson) -> list[float]:
    return [row["epoch"] for row in group["curve"]]


def of_both(there: GroupJson, new: GroupJson) -> GroupJson:
    """Returns one group of the seeds of two of one setting, at the epochs that both have.

    New runs of all old seeds replace the old group. Raises ConfigError where only some of its seeds ran again.
    """
    again = set(there["seeds"]) & set(new["seeds"])
    if again == set(there["seeds"]):
        return new
    if set(new["runs"]) <= set(there["runs"]):
        return there
    if again:
        raise ConfigError(
            f"{new['runs'][0]}: the summary holds seeds {_text(there['seeds'])} and the runs here are of seeds "
            f"{_text(new['seeds'])}. A mean cannot be taken apart: give runs of all of its seeds, or of others alone."
        )
    sizes = len(there["seeds"]), len(new["seeds"])
    timed = there if there["iteration_time"] or not new["iteration_time"] else new  # whose machine is named
    times = [timed["iteration_time"]] * _timed(timed)
    if timed is there and new["iteration_time"] and same_machine.alike(there["machine"], new["machine"]):
        times += [new["iteration_time"]] * _timed(new)
    members = sorted(zip(there["seeds"] + new["seeds"], there["runs"] + new["runs"], strict=True))
    later = {row["epoch"]: row for row in new["curve"]}
    each = {**_each_seed(there, later), **_each_seed(new, {row["epoch"] for row in there["curve"]})}
    pooled = there | {
        "seeds": [seed for seed, _ in members],
        "runs": [run for _, run in members],
        "fingerprint": there.get("fingerprint") or new.get("fingerprint", ""),
        "seed_accuracies": [each[seed] for seed, _ in members] if len(each) == len(members) else [],
        "curve": [_row(row, later[row["epoch"]], *sizes) for row in there["curve"] if row["epoch"] in later],
        "iteration_time": middle(times) if times else [],
        "timed_runs": len(times),
        "machine": timed["machine"],
        "machine_seed": timed["seeds"][0] if timed.get("machine_seed") is None else timed["machine_seed"],
        "seed_rates": sorted(there.get("seed_rates", []) + new.get("seed_rates", []), key=lambda row: row["seed"]),
    }
    return rounded(pooled)


def _timed(group: GroupJson) -> int:
    """Returns of how many runs the seconds are."""
    known = group.get("timed_runs")
    return (len(group["seeds"]) if known is None else known) if group["iteration_time"] else 0


def _each_seed(group: GroupJson, epochs: Container[float]) -> dict[int, list[float]]:
    """Returns test accuracies, or perplexities, by seed, at `epochs`; {} where the summary has only their mean."""
    each = group.get("seed_accuracies") or []
    if len(group["seeds"]) == 1:
        key = metric.of(group["settings"]["data"]).key
        each = [[row[key] for row in group["curve"]]]
    common = [row["epoch"] in epochs for row in group["curve"]]
    return {seed: list(compress(values, common)) for seed, values in zip(group["seeds"], each, strict=False)}


def _row(a: Row, b: Row, n_a: int, n_b: int) -> Row:
    """Returns the mean and sample deviation of both, computed from those of each."""
    row = dict(a)
    n = n_a + n_b
    for name in (field.removesuffix("_std") for field in a if field.endswith("_std")):
        if a[name] is None or b[name] is None:
            row |= {name: None, f"{name}_std": None}
            continue
        apart = b[name] - a[name]
        squares = sum((r[f"{name}_std"] or 0.0) ** 2 * (m - 1) for r, m in ((a, n_a), (b, n_b)))
        squares += apart**2 * n_a * n_b / n
        row |= {name: a[name] + apart * n_b / n, f"{name}_std": math.sqrt(squares / (n - 1))}
    return row


def _text(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds))
