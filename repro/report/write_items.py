"""Writes figures and tables to files, and says what is not run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from repro import figures as items
from repro import results
from repro import tables as text
from repro.tables import Row

Say = Callable[[str], None]


def figures(only: Sequence[str], runs: Path | None, out: Path, formats: Sequence[str], say: Say) -> None:
    """Each figure in every format, and its rows as CSV. An item without any data is not drawn: its command
    is said."""
    data = results.load(runs=runs)
    drawn: dict[items.Item, list[Row]] = {}
    for item in items.load(only):
        if item.draw is None:
            continue
        if rows := item.table(data):
            drawn[item] = rows
        else:
            say(f"{item.name}: not run: {item.command}")
    places = items.side_by_side(partial(items.save, out=out, formats=formats), drawn, drawn.values())
    for (item, rows), paths in zip(drawn.items(), places, strict=True):
        (out / f"{item.name}.csv").write_text(text.to_csv(rows))
        say(
            f"{item.name}: {', '.join(map(str, paths))}"
            + ("" if item.ours(rows) else f" (published alone; ours: {item.command})")
        )


def tables(only: Sequence[str], runs: Path | None, out: Path, say: Say) -> None:
    data = results.load(runs=runs)
    out.mkdir(parents=True, exist_ok=True)
    for item in items.load(only):
        if item.draw is not None:
            continue
        rows = item.table(data)
        if not rows:
            say(f"{item.name}: not run: {item.command}")
            continue
        for suffix, form in (("md", text.to_markdown), ("tex", text.to_latex), ("csv", text.to_csv)):
            (out / f"{item.name}.{suffix}").write_text(form(rows))
        say(f"{item.name}: {out / item.name}.md .tex .csv")


def overview(runs: Path | None) -> list[dict[str, str]]:
    data = results.load(runs=runs)
    return [
        {
            "item": item.name,
            "kind": "table" if item.draw is None else "figure",
            "data of ours": state(item, item.table(data)),
            "command": item.command,
        }
        for item in items.load()
    ]


def state(item: items.Item, rows: list[Row]) -> str:
    return "yes" if item.ours(rows) else "not run"


def of_experiment(experiment: str, runs: Path, out: Path) -> tuple[dict[str, Path], list[Row]]:
    """The figures that the finished runs of an experiment feed, drawn as PNG into `out`, and the claims
    with their verdicts.

    Both empty where no figure belongs to the experiment.
    """
    mine = [item for item in items.load() if item.experiment == experiment]
    if not mine:
        return {}, []
    data = results.load()
    data.summaries.update(results.collect(runs, [experiment])[0])
    drawn = {}
    for item in mine:
        rows = item.table(data)
        if item.draw is not None and rows:
            (drawn[item.name],) = items.save(item, rows, out, ["png"])
    return drawn, items.load(["claims"])[0].table(data)
