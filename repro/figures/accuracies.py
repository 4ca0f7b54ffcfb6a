"""Lists the final loss and accuracy, or perplexity, of every convergence run, with what its steps cost."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Container, Sequence
from typing import Any

from repro import metric
from repro.config.differences import differing, flat
from repro.config.schema import Config
from repro.figures import _curves, _draw, _sent
from repro.metric import Metric
from repro.report import intervals, pairs, prefixes, reference_curves, same_machine
from repro.report.group import Group
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Final accuracies of the convergence runs"
COMMAND = _curves.CONVERGENCE
BESIDE = ("whole runs at this epoch (%)", "reference curves at this epoch, original images")  # columns of prefixes
# the mean of how many epochs is compared, the seeds of it, and the 90 % interval
BELOW = ("epochs averaged", "shared seeds", "below dense (points)", "from (points)", "to (points)")
RATE = "samples/s in quiet stretches"  # of each run that one kind of machine made: all nodes, upper quartile
# what the run id leaves out, and what columns of their own say
SAID = {f.name for f in dataclasses.fields(Config) if not f.metadata.get("result", True)} | {
    "algo", "model", "data", "nodes", "precision", "epochs", "steps", "schedule_epochs", "scale_schedule"
}  # fmt: skip
# of keys that came later than some summaries
USUAL = {f.name: f.default for f in dataclasses.fields(Config) if f.default is not dataclasses.MISSING}


def table(results: Results) -> list[Row]:
    rows = []
    groups = [group for group in results.groups("convergence") if group.curve]
    order = _draw.algos_of({"algo": group.algo} for group in groups)
    differ, noise = _differing(groups), intervals.noise_of_repeats(results.reference)
    for group in sorted(groups, key=lambda group: (group.model, *_schedule(group), order.index(group.algo))):
        last = group.curve[-1]
        rows.append(
            {
                "model": _draw.model_name(group.model),
                "algorithm": _draw.algo_name(group.algo),
                "source": "trained",
                "data": _draw.data_name(group.data),
                "nodes": group.nodes,
                "schedule": group.schedule,
                "precision": group.settings["precision"],
                **{name: _cell(_settings(group).get(name)) for name in differ},
                "n": group.n,
                "train loss": last["train_loss"],
                **_measured(last, {group.metric for group in groups}),
                **_from_dense(group, groups, noise),
                **_beside(group, groups, results),
                **_sent.columns(group),
                "ms per iteration": 1e3 * group.time.total if group.time else None,
                "time": group.timed["source"] if group.timed else None,
                RATE: ", ".join(map(_rate, group.seed_rates)) or None,
                "timed on": same_machine.processor(group.machine) if group.timed else None,
            }
        )
    empty = {name for name in (*BESIDE, *BELOW, RATE) if all(row[name] is None for row in rows)}
    return [{name: cell for name, cell in row.items() if name not in empty} for row in _sent.known(rows)]


def _beside(group: Group, groups: Sequence[Group], results: Results) -> Row:
    """Returns what a prefix is held against: whole runs and reference curves at the epoch where it ends."""
    if not prefixes.is_prefix(group):
        return dict.fromkeys(BESIDE)
    whole = prefixes.whole_runs_at_its_end(group, groups)
    others = reference_curves.at(results.reference, group.settings, group.epochs)
    return dict(zip(BESIDE, (whole and whole.mean, others or None), strict=True))


def _from_dense(group: Group, groups: Sequence[Group], noise: float | None) -> Row:
    """Returns by how many points the seeds that dense has too are below it where a run ends, and the interval of that.

    Before the learning rate drops it is by the mean of `prefixes.EPOCHS`.
    """
    over = prefixes.averaged(group, group.epochs)
    dense = [one for one in groups if one.algo == "dense" and one is not group and pairs.alike(one, group)]
    if group.algo == "dense" or group.metric is not metric.ACCURACY or not dense:
        return dict.fromkeys(BELOW)
    ours, theirs = (prefixes.at_epoch(same, group.epochs, over) for same in ([group], dense))
    if not (ours and theirs):
        return dict.fromkeys(BELOW)
    most = max(theirs, key=lambda one: len(one.accuracies.keys() & ours[0].accuracies.keys()))
    apart = most.above(ours[0], noise if group.whole else None)
    ends = (apart.low, apart.high) if math.isfinite(apart.low) else (None, None)
    return dict(zip(BELOW, (over, apart.n, apart.mean, *ends), strict=True))


def _measured(last: Row, present: Container[Metric]) -> Row:
    """Returns the columns of each measure that any of the groups has, for a group's last evaluation."""
    cells: Row = {}
    for measure in (one for one in metric.ALL if one in present):
        value, apart = last.get(measure.key), last.get(f"{measure.key}_std")
        spread = "± (%)" if measure is metric.ACCURACY else "± (perplexity)"
        cells |= {f"test {measure.label}": measure.cell(value), spread: measure.cell(apart)}
    return cells


def _rate(row: Row) -> str:
    return f"{row['samples_per_s']:.0f} (seed {row['seed']}, {row['processor'] or 'processor not recorded'})"


def _schedule(group: Group) -> tuple[bool, int]:
    """Sorts uncompressed schedules before compressed ones, and longer before shorter."""
    return group.compressed, -group.settings["epochs"]


def _differing(groups: Sequence[Group]) -> list[str]:
    """Returns the settings that differ between rows of one model, but for what other columns say."""
    by_model = defaultdict(list)
    for group in groups:
        by_model[group.model].append(_settings(group))
    found = dict.fromkeys(name for rows in by_model.values() for name in differing(rows))
    return [name for name in found if name not in SAID]


def _settings(group: Group) -> Row:
    """Returns them by the keys of the command line."""
    return flat({**group.settings, **USUAL, **group.settings})  # in the order of its own


def _cell(value: Any) -> Any:
    return ", ".join(f"{part:g}" for part in value) if isinstance(value, list) else value
