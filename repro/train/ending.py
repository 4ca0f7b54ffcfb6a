"""Prints what stands at the end of a sweep: its table, what a reader should know of it, and what to type next."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from repro import screen
from repro.comm import cost_formulas
from repro.comm.traffic import Link
from repro.config.differences import differing, flat
from repro.config.groups import title
from repro.config.schema import Config, ConfigError
from repro.iteration_time import PARTS, IterationTime
from repro.metric import Metric
from repro.report import reference_curves
from repro.train import next_steps

Summary = dict[str, Any]  # as `run_folder.summary` gives it
MOST_NODES = 1024  # up to which it is looked for where gTop-k overtakes Top-k


def report(configs: Sequence[Config], summaries: Sequence[Summary], given: Sequence[str] | None) -> None:
    """Prints to stdout. `given` holds the settings that were typed, None where a manifest gave them."""
    print(screen.table(rows(configs, summaries), len(varied(configs))))
    print()
    for line in notes(configs, summaries):
        print(screen.sentence(line))
    print("Run folders (config.yaml, metrics.jsonl, provenance.json):")
    for summary in summaries:
        print(f"  {summary['folder']}")
    print("Next:")
    for why, words in next_steps.suggest(configs, summaries, given):
        print(f"  {shlex.join(words)}\n{screen.indented(f'      {why}')}")


def rows(configs: Sequence[Config], summaries: Sequence[Summary]) -> list[dict[str, Any]]:
    """Returns the cells of the table, a row for each run."""
    names = varied(configs)
    settings = [flat(dataclasses.asdict(config)) for config in configs]
    warm = any(map(ended_in_warmup, configs, summaries))
    states = any(summary["state"] != "done" for summary in summaries)
    measures = dict.fromkeys(config.data.metric for config in configs)
    return [
        {**{name: cell(row.get(name)) for name in names}, **_columns(config, summary, measures, warm, states)}
        for config, row, summary in zip(configs, settings, summaries, strict=True)
    ]


def varied(configs: Sequence[Config]) -> list[str]:
    """Returns the keys in which the runs differ, the algorithm always among them; its seed only if it is of its own."""
    differ = differing([flat(dataclasses.asdict(config)) for config in configs])
    follows = ["algo.seed"] if all(config.draws_by_seed for config in configs) else []
    return ["algo", *(name for name in differ if name not in ("algo", *follows))]


def named_twice(configs: Sequence[Config], names: Sequence[Hashable]) -> list[str]:
    """Returns the keys in which two of `configs` that have one of `names` differ; [] where all names are different."""
    first: dict[Hashable, Config] = {}
    for config, name in zip(configs, names, strict=True):
        if name in first:
            return varied([first[name], config])[1:]
        first[name] = config
    return []


def ended_in_warmup(config: Config, summary: Summary) -> bool:
    """Returns whether the last step was one of the density warm-up, of another density than those after it."""
    last = summary["density"]
    return config.algo.sparse and last is not None and last != config.density


def notes(configs: Sequence[Config], summaries: Sequence[Summary]) -> list[str]:
    """Returns sentences that say what the table's numbers are."""
    sources = sorted({f"{s['source']} on {s['network']}" for s in summaries if s["source"]})
    lines = [f"Times are of one iteration on one node: {', '.join(sources) or 'none yet'}."]
    for config, summary in zip(configs, summaries, strict=True):
        if ended_in_warmup(config, summary):
            of = "the bytes are those" if config.stages == 1 else "beside the activations the bytes are those"
            later = "fewer" if config.density < summary["density"] else "more"
            lines.append(
                f"{config.algo.name} ended inside its density warm-up: {of} of density "
                f"{summary['density']:g} (k = {summary['k']:,}), and {later} follow at density {config.density:g}."
            )
        warmup, made = config.algo.options.get("warmup_steps", 0), summary["step"] or 0
        if 0 < made <= warmup:
            lines.append(
                f"{config.algo.name} ended inside its warm-up of {warmup:,} steps, which are dense: its accuracy and "
                f"bytes are of these, and the time is of the steps after it. Type algo.warmup_steps={max(1, made // 5)}"
            )
        if summary["bytes_sent_between"]:
            several = sum(other.algo.name == config.algo.name for other in configs) > 1
            lines.append(spread(f"{config.algo.name}{f' ({config.run_id})' * several}", summary))
    lines += [*first_epochs(configs, summaries), *rounds_against_bytes(configs, summaries)]
    return list(dict.fromkeys(lines))  # of two seeds the same


def spread(algo: str, summary: Summary) -> str:
    """Returns how far the bytes of steps and nodes lie apart, where messages depend on values."""
    least, most = map(screen.size, summary["bytes_sent_between"])
    busiest = summary["bytes_sent_worst_rank"]
    among = f"; the busiest node sends {screen.size(busiest)} on average" if busiest else ""
    return f"The bytes of {algo} depend on values: they are a mean over steps of {least} to {most}{among}."


def first_epochs(configs: Sequence[Config], summaries: Sequence[Summary]) -> list[str]:
    """Returns which runs on CIFAR-10 have the first epochs of their schedule alone, and what others had there."""
    begun = [config for config, summary in zip(configs, summaries, strict=True) if _is_prefix(config, summary)]
    runs = _reference() if begun else []
    return [_prefix(config, reference_curves.at(runs, dataclasses.asdict(config), config.epochs)) for config in begun]


def _is_prefix(config: Config, summary: Summary) -> bool:
    written = config.steps is None and not config.scale_schedule and config.epochs < config.schedule_epochs
    return written and config.data.name == reference_curves.DATA and summary["state"] == "done"


def _prefix(config: Config, others: str) -> str:
    epochs, whole = config.epochs, config.schedule_epochs
    line = f"epochs={epochs} has the first {epochs} of {whole} epochs: compare it with epoch {epochs} of whole runs."
    samples = config.samples_per_step
    of = f"{title('model', config.model.name)}, {samples:,} samples a step, lr {config.lr:g}, the original images"
    return f"{line} Others had {others} at epoch {epochs} ({of})." if others else line


def _reference() -> list[reference_curves.Run]:
    """Returns the reference curves; none where the file is not there, as a run that has ended well does not fail."""
    try:
        return reference_curves.load()
    except (ConfigError, OSError):
        return []


def rounds_against_bytes(configs: Sequence[Config], summaries: Sequence[Summary]) -> list[str]:
    """Returns why gTop-k sends less than Top-k and takes longer, where the table shows that."""
    found = {
        config.algo.name: (config, summary)
        for config, summary in zip(configs, summaries, strict=True)
        if summary["source"] == "modelled" and summary["k"] is not None and not ended_in_warmup(config, summary)
    }
    if not {"topk", "gtopk"} <= found.keys():
        return []
    (config, gtopk), (other, topk) = found["gtopk"], found["topk"]
    slower = gtopk["communicate_s"] >= topk["communicate_s"]
    less = gtopk["bytes_sent_per_step"] < topk["bytes_sent_per_step"]
    alike = (config.nodes, config.density, config.network) == (other.nodes, other.density, other.network)
    usual = config.algo.wire == other.algo.wire == "pairs" and config.algo.options["route"] == "tree"
    # else the rounds are those of each bucket, or of some of the nodes
    whole = all(one.bucket_mb is None and not one.hierarchical and one.stages == 1 for one in (config, other))
    if not (slower and less and alike and usual and whole):
        return []
    rounds = cost_formulas.log2(config.nodes)
    return [
        f"gTop-k sends fewer bytes than Top-k, but in {2 * rounds} rounds of messages instead of {rounds}: on "
        f"{config.nodes} nodes the rounds cost more than the bytes save. {_overtakes(config, gtopk['k'])} "
        "docs/algorithms.md tells how each of them sends."
    ]


def _overtakes(config: Config, k: int) -> str:
    wire = config.network
    link, size = Link(wire.alpha_s, wire.beta_s_per_byte), config.nodes
    # between powers of 2 its rounds are those of the next one
    of_these = f", of {2 * size}, {4 * size}, {8 * size}, ... nodes"
    while (size := 2 * size) <= MOST_NODES:
        if cost_formulas.closed_form("gtopk", size, 0, k, link) < cost_formulas.closed_form("topk", size, 0, k, link):
            return f"On {wire.name}, with k = {k:,}, gTop-k is ahead from {size} on{of_these}."
    return f"On {wire.name}, with k = {k:,}, it is not ahead up to {MOST_NODES}{of_these}."


def cell(value: Any) -> str:
    """Writes a setting as it is typed: to six digits if that is all of it, as others would be another run's."""
    if isinstance(value, float) and float(short := f"{value:g}") == value:
        return short
    return "" if value is None else str(value)


def _columns(config: Config, summary: Summary, measures: Iterable[Metric], warm: bool, states: bool) -> dict[str, Any]:
    parts = {part: summary[part] for part in PARTS}
    total = None if None in parts.values() else IterationTime.of(summary).total
    sent = summary["bytes_sent_per_step"]
    density = f"{summary['density']:g}" if ended_in_warmup(config, summary) else None
    return {
        **{measure.label: measure.cell(summary[measure.key]) for measure in measures},
        "sent per step": None if sent is None else screen.Bytes(sent),
        **({"at density": density} if warm else {}),
        **{f"{part.removesuffix('_s')} (ms)": screen.ms(seconds) for part, seconds in parts.items()},
        "iteration (ms)": screen.ms(total),
        **({"state": summary["state"]} if states else {}),
    }
