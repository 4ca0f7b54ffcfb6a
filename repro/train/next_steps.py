"""Says what to type after a sweep: what was not done yet, with the settings that were typed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from repro.cluster import environment
from repro.config.compose import compose
from repro.config.schema import Config, ConfigError
from repro.report import write_items
from repro.runs.progress import extent
from repro.screen import plural

Suggestion = tuple[str, list[str]]  # why, and the words of the command

PAPERS = ("dense", "topk", "gtopk")  # the algorithms that the article compares
EASY = ("digits", "synthetic")  # data that say little of how an algorithm converges
KEPT = (
    "nodes", "results", "seed", "threads", "device", "cluster", "data.root",
    "wandb.mode", "wandb.entity", "wandb.project",
)  # fmt: skip


def suggest(
    configs: Sequence[Config], summaries: Sequence[dict[str, Any]], given: Sequence[str] | None
) -> Iterator[Suggestion]:
    """Yields suggestions. `given` holds the settings that were typed, None where a manifest gave them.

    No command trains longer than what was typed, or than one epoch.
    """
    first = configs[0]
    # else a launcher starts the ranks, with words that are not known here
    alone = first.cluster.name != "environment" and environment.discover() is None
    if any(summary["state"] != "done" for summary in summaries):
        folder = [] if first.results == "results/runs" else ["--results", _path(first.results)]
        again = given is not None and alone
        words = ["repro", "run", *(given or [])] if again else ["repro", "status", *folder]
        yield "goes on with what is not done" if again else "says how the runs stand", words
    simulated = [
        not config.hierarchical and config.stages == 1 and config.cluster.authors == "none" for config in configs
    ]
    if any(summary["source"] and known for known, summary in zip(simulated, summaries, strict=True)):
        place = summaries[0]["folder"] if len(configs) == 1 else str(Path(summaries[0]["folder"]).parent)
        other = "ethernet10g" if first.network.name != "ethernet10g" else "ethernet1g"
        yield "the same on another network, without training", [
            "repro", "simulate", "--run", _path(place), f"network={other}"
        ]  # fmt: skip
    if given is not None and alone and all(summary["state"] == "done" for summary in summaries):
        yield from _more_runs(configs, given)
    yield from _figures(first)


def _more_runs(configs: Sequence[Config], given: Sequence[str]) -> Iterator[Suggestion]:
    first = configs[0]
    missing = [name for name in PAPERS if name not in {config.algo.name for config in configs}]
    trains = first.node is None
    extents = list(dict.fromkeys(map(extent, configs)))
    long = f"{' or '.join(extents)} each" if trains else extents[0]
    if missing:
        few = "the other algorithms" if len(missing) > 1 else "the other algorithm"
        words = replaced(given, "algo", ",".join(missing))
        # the sparse ones select from the whole gradient unless they are told otherwise
        if any(config.bucket_mb is not None for config in configs):
            words = replaced(words, "scope", "bucket")
        if offered := _possible(words):
            runs = f"{plural(offered, 'run')}, {long}" if offered > len(missing) else long
            yield f"{few} of the article, with these settings ({runs})", ["repro", "run", *words]
    elif trains and first.data.name in EASY:
        kept = [word for word in given if word.partition("=")[0] in KEPT]
        yield "real images, one epoch; the first time it downloads 170 MB", [
            "repro", "run", *kept, "data=cifar10", "model=resnet20", f"algo={','.join(PAPERS)}", "epochs=1"
        ]  # fmt: skip
    seeds = {config.seed for config in configs}
    if trains and len(seeds) == 1:
        count = plural(len(configs), "run")
        yield f"another seed, to see how far results spread ({count}, {long})", [
            "repro", "run", *replaced(given, "seed", str(first.seed + 1))
        ]  # fmt: skip


def _possible(words: Sequence[str]) -> int:
    """Returns how many runs `repro run` would begin; 0 where it would refuse one.

    A sweep that was done before has loaded no torch, and does not for this: then what composes is offered.
    """
    try:
        runs = compose([*words])
    except ConfigError:
        return 0
    if "torch" in sys.modules:
        from repro.train import combinations

        runs = runs if all(map(combinations.allows, runs)) else []
    return len(runs)


def _figures(config: Config) -> Iterator[Suggestion]:
    if config.experiment == "default":  # nothing is for it
        return
    for item in sorted(write_items.fed_by(config.experiment), key=lambda item: item.name != config.experiment):
        cut = config.steps is not None or (config.epochs < config.schedule_epochs and not config.scale_schedule)
        part = cut and item.draw is not None
        # curves of one setting are drawn once, the longest, and committed ones may be longer
        which, alone = (
            ("of these runs alone", ["--alone", "--out", "mine"]) if part else (", with these runs in it", [])
        )
        yield f"the {item.name} {write_items.kind_of(item)}{' ' * part}{which}", [
            "repro", "plot", f"{write_items.kind_of(item)}s", "--only", item.name, "--runs", _path(config.results),
            *alone,
        ]  # fmt: skip
        return
    yield "one page with all results, these runs among them", ["repro", "report", "--runs", _path(config.results)]


def replaced(given: Sequence[str], key: str, value: str) -> list[str]:
    """Returns the settings with `key` set to `value`, without the options of what it was, which another may lack."""
    return [*(word for word in given if word.partition("=")[0].partition(".")[0] != key), f"{key}={value}"]


def _path(name: str) -> str:
    """Returns the path in a form that no command takes for an option."""
    return f"./{name}" if name.startswith("-") else name
