"""Several runs one after another, and the table at their end."""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
from typing import Any

from repro import data, environment, lock, preempt, record
from repro.choices import cost
from repro.config import Config, RunError
from repro.tables import milliseconds


def run(configs: list[Config]) -> int:
    """Train what is not done, go on with what was begun, and print one table. Returns the exit code.

    Told to stop by USR2, it puts its SLURM job back into the queue; by TERM or INT, it does not.
    """
    with preempt.listening() as interrupt:
        return _run(configs, interrupt)


def _run(configs: list[Config], interrupt: preempt.Interrupt) -> int:
    for config in configs:  # before torch is imported, and before the first run
        place = environment.find_place(config)
        record.check_writable(config.folder)
        if record.state(config.folder) != "done":
            data.fetch(config.data)
    speaks = place is None or place.rank == 0  # of the ranks that torchrun or srun started, one talks
    price = cost(configs[0].experiment)
    if price is not None:
        _say(f"experiment={configs[0].experiment}, runs: {len(configs)}. Its cost: {price}", speaks)
    summaries, failures = [], 0
    try:
        for config in configs:
            summary = _one(config, interrupt, alone=place is None, speaks=speaks)
            summaries.append(summary)
            failures += summary["state"] not in ("done", "preempted")
            if summary["state"] == "preempted":
                _say("Stopped as asked; the same command goes on from here.", speaks)
                break
    except KeyboardInterrupt:
        _say("Stopped; the same command goes on from the last checkpoint.", speaks)
        return 130
    if speaks:
        report(configs[: len(summaries)], summaries)
        if summaries[-1]["state"] == "preempted" and not interrupt.final and environment.job():
            _say(preempt.requeue(), speaks)
    return 1 if failures else 130 if interrupt.final else 0


def _one(config: Config, interrupt: preempt.Interrupt, alone: bool, speaks: bool) -> dict[str, Any]:
    """One run's summary. A failure is said and kept in it, so that the rest of a sweep still runs."""
    if not alone:  # ranks that look at the folder at different moments could disagree: `training` asks rank 0
        return _train(config, interrupt)
    if record.state(config.folder) == "done":
        _say(f"{config.folder} is done already; remove the folder to run it again.", speaks)
        return record.summary(config.folder)
    owner = lock.holder(config.folder)
    if owner is not None and owner["pid"] != os.getpid():
        _say(f"{config.folder} is in use by process {owner['pid']} on {owner['host']}; left out.", speaks)
        return {**record.summary(config.folder), "state": "in use"}
    return _train(config, interrupt)


def _train(config: Config, interrupt: preempt.Interrupt) -> dict[str, Any]:
    gc.disable()  # about a tenth of what importing torch takes is looking for garbage, of which it leaves none
    from repro import training

    gc.enable()
    try:
        return training.run(config, interrupt)
    except RunError as error:
        _say(f"repro: {error}", True)
        return {**record.summary(config.folder), "state": "failed"}


def report(configs: list[Config], summaries: list[dict[str, Any]]) -> None:
    """The table, the folders, and what to type next. On stdout."""
    names = varied(configs)
    table([
        {**{name: _cell(_value(config, name)) for name in names}, **_columns(summary)}
        for config, summary in zip(configs, summaries, strict=True)
    ])  # fmt: skip
    sources = sorted({f"{s['source']} on {s['network']}" for s in summaries if s["source"]})
    print(f"\nTimes are of one iteration on one node: {', '.join(sources) or 'none yet'}.")
    print("Run folders (config.yaml, metrics.jsonl, provenance.json):")
    for summary in summaries:
        print(f"  {summary['folder']}")
    experiment = configs[0].experiment
    again = f"experiment={experiment}" if experiment != "default" else f"algo={configs[0].algo.name}"
    print("Next:")
    if any(summary["state"] != "done" for summary in summaries):
        print("  the same command again     goes on with what is not done")
    print(f"  repro run {again} network=ethernet10g     the same on a faster network")
    print("  repro run model=resnet20 algo=gtopk nodes=32 data=digits epochs=1     the paper's 32 nodes")
    print(f"  repro plot figures --runs {configs[0].results}     the figures, with these runs in them")


def varied(configs: list[Config]) -> list[str]:
    """The keys in which the runs differ, the algorithm always among them."""
    names = [f.name for f in dataclasses.fields(Config) if f.name not in ("results", "experiment", "wandb")]
    differ = [name for name in names if any(_value(c, name) != _value(configs[0], name) for c in configs)]
    return ["algo", *(name for name in differ if name not in ("algo", "density_warmup"))]


def _value(config: Config, name: str) -> Any:
    value = getattr(config, name)
    return getattr(value, "name", value)


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _columns(summary: dict[str, Any]) -> dict[str, str]:
    parts = {part: summary[f"{part}_s"] for part in ("compute", "compress", "communicate")}
    total = None if None in parts.values() else sum(parts.values()) - (summary["hidden_s"] or 0.0)
    accuracy = summary["test_accuracy"]
    return {
        "accuracy": "-" if accuracy is None else f"{100 * accuracy:.2f} %",
        "sent/node/step": _bytes(summary["bytes_sent_per_step"]),
        **{part: _milliseconds(seconds) for part, seconds in parts.items()},
        "iteration": _milliseconds(total),
        "state": summary["state"] or "-",
    }


def _bytes(count: int | None) -> str:
    if count is None:
        return "-"
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else milliseconds(seconds)


def table(rows: list[dict[str, str]]) -> None:
    """Rows with the same columns, with rich on a terminal and as aligned text elsewhere."""
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table

        drawn = Table(*rows[0], box=box.SIMPLE_HEAD)
        for row in rows:
            drawn.add_row(*row.values())
        Console().print(drawn)
        return
    widths = [max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]]
    for cells in [list(rows[0]), *(list(row.values()) for row in rows)]:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())


def _say(text: str, speaks: bool) -> None:
    if speaks:
        print(text, file=sys.stderr, flush=True)
