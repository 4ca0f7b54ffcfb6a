"""Writes figures and tables to files, and says what is not run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from repro import figures as items
from repro import tables as text
from repro.config.schema import ConfigError
from repro.report import summaries
from repro.report.from_run_folders import collect
from repro.report.summaries import Results
from repro.tables import Row
from repro.whole_files import write_whole

Say = Callable[[str], None]


def figures(
    only: Sequence[str],
    runs: Path | None,
    out: Path,
    formats: Sequence[str],
    say: Say,
    notes: bool = True,
    width: str = "",
    alone: bool = False,
) -> None:
    """Draws each figure in every format, and writes its rows as CSV. Of an item without data it says the command."""
    drawn = _with_rows("figure", only, _loaded(runs, say, alone), say, alone)
    places = items.side_by_side(
        partial(items.save, out=out, formats=formats, notes=notes, width=width), drawn, drawn.values()
    )
    for (item, rows), paths in zip(drawn.items(), places, strict=True):
        write_whole(out / f"{item.name}.csv", text.to_csv(rows))
        say(
            f"{item.name}: {', '.join(map(str, paths))}"
            + ("" if item.ours(rows) else f" (published alone; ours: {made_by(item)})")
        )


def tables(only: Sequence[str], runs: Path | None, out: Path, say: Say, alone: bool = False) -> None:
    written = _with_rows("table", only, _loaded(runs, say, alone), say, alone)
    out.mkdir(parents=True, exist_ok=True)
    for item, rows in written.items():
        for suffix, form in (("md", text.to_markdown), ("tex", text.to_latex), ("csv", text.to_csv)):
            write_whole(out / f"{item.name}.{suffix}", form(rows))
        say(f"{item.name}: {out / item.name}.md .tex .csv")


def _loaded(runs: Path | None, say: Say, alone: bool = False) -> Results:
    if alone and runs is None:
        raise ConfigError("--alone is of the runs in a folder; type --runs results/runs too")
    data = summaries.load(runs=runs, alone=alone)
    for line in data.left_out:
        say(f"left out, {line}")
    return data


def _with_rows(kind: str, only: Sequence[str], data: Results, say: Say, alone: bool) -> dict[items.Item, list[Row]]:
    """Returns the items that there is something to show of, and says of the others what makes it.

    `alone`: what no run of an experiment is in is nothing to show; the many others get one line.
    """
    rows = {item: item.table(data) for item in _of_kind(kind, only)}
    shown = {item: found for item, found in rows.items() if found and (not alone or item.holds_runs(found))}
    others = [item for item in rows if item not in shown]
    if alone and others and not only:
        say(f"These runs are not in {', '.join(item.name for item in others)}.")
    else:
        for item in others:
            say(f"{item.name}: not run: {made_by(item)}")
    if alone and not shown:
        say("Runs without experiment=NAME are in none: type experiment=convergence, say, or another of docs/keys.md.")
    return shown


def _of_kind(kind: str, only: Sequence[str]) -> list[items.Item]:
    """Returns the figures or the tables among `only`, or all. Raises ConfigError for one of the other kind."""
    loaded = items.load(only)
    for item in loaded if only else []:
        if kind_of(item) != kind:
            raise ConfigError(f"{item.name} is a {kind_of(item)}: repro plot {kind_of(item)}s --only {item.name}")
    return [item for item in loaded if kind_of(item) == kind]


def kind_of(item: items.Item) -> str:
    return "table" if item.draw is None else "figure"


def overview(runs: Path | None, say: Say) -> list[dict[str, str]]:
    data = _loaded(runs, say)
    return [
        {
            "item": item.name,
            "kind": kind_of(item),
            "data of ours": state(item, item.table(data)),
            "command": made_by(item),
        }
        for item in items.load()
    ]


def made_by(item: items.Item) -> str:
    return "; ".join(item.commands)


def state(item: items.Item, rows: list[Row]) -> str:
    return "yes" if item.ours(rows) else "not run"


def fed_by(experiment: str) -> list[items.Item]:
    """Returns the figures and tables that the experiment is for; others may have its runs in them too."""
    if experiment == "default":  # none; a run of none need not load matplotlib at its end, which takes a second
        return []
    return [item for item in items.load() if item.experiment == experiment]


def of_experiment(experiment: str, runs: Path, out: Path) -> tuple[dict[str, Path], list[Row]]:
    """Draws the figures that an experiment's finished runs feed, as PNG into `out`; returns them, and its claims.

    The claims are those that runs of this experiment decide, with their verdicts. Both are empty where no figure
    belongs to the experiment.
    """
    mine = fed_by(experiment)
    if not mine:
        return {}, []
    data = summaries.load()
    data.summaries.update(collect(runs, [experiment])[0])  # these runs alone, with nothing committed between
    drawn = {}
    for item in mine:
        rows = item.table(data)
        if item.draw is not None and rows:
            (drawn[item.name],) = items.save(item, rows, out, ["png"])
    claims = items.load(["claims"])[0].table(data)
    return drawn, [row for row in claims if items.experiment_of(row["command"]) == experiment]
