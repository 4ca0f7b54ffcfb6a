"""`repro results collect` and `repro results readme`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command()(collect)
    group.command()(readme)
    app.add_typer(group, name="results", help="Run folders to summaries, and summaries to the README's table.")


def collect(
    runs: Annotated[Path, typer.Option(help="The folder that the runs are in.")] = Path("results/runs"),
    out: Annotated[Path, typer.Option(help="Where summaries/ is.")] = Path("results"),
    only: Annotated[list[str] | None, typer.Option("--only", help="One experiment; may be repeated.")] = None,
    add: Annotated[bool, typer.Option("--add", help="Keep what is there, and pool other seeds with it.")] = False,
) -> None:
    """Make one small summary for each experiment: mean, deviation, n, seeds, run ids, versions. Only
    finished runs count.

    \b
    repro results collect
    repro results collect --runs /scratch/runs --only convergence
    repro results collect --runs /scratch/runs --add        seeds run elsewhere, to the summaries that are there
    """
    from repro import pool, results

    summaries, left_out = results.collect(runs, only or [])
    if add:
        there = results.saved(out)
        summaries = {name: pool.pool(there[name], new) if name in there else new for name, new in summaries.items()}
    for path in results.save(summaries, out):
        typer.echo(f"{path}: {len(summaries[path.stem]['groups'])} settings")
    for line in left_out:
        typer.echo(f"left out, {line}")


def readme(
    file: Annotated[Path, typer.Argument(help="The README.")] = Path("README.md"),
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit code 1 if it is out of date.")] = False,
) -> None:
    """Write the results table between the README's markers, from the committed summaries.

    \b
    repro results readme
    repro results readme --check
    """
    from repro import readme as section

    current = section.update(file, write=not check)
    typer.echo(f"{file} is up to date." if current or not check else f"{file} is out of date: repro results readme")
    raise typer.Exit(0 if current or not check else 1)
