"""Defines `repro results collect`, `repro results missing` and `repro results docs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro.commands.overrides import Overrides, listed, refuse_grid


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command()(collect)
    group.command()(missing)
    group.command()(docs)
    app.add_typer(group, name="results", help="Run folders to summaries, and summaries to the pages.")


def collect(
    runs: Annotated[Path, typer.Option(help="The folder that the runs are in.")] = Path("results/runs"),
    out: Annotated[Path, typer.Option(help="Where summaries/ is.")] = Path("results"),
    only: Annotated[list[str] | None, typer.Option("--only", help="These experiments, with commas.")] = None,
    add: Annotated[
        bool, typer.Option("--add/--replace", help="Keep what is there, and pool other seeds with it; or drop it.")
    ] = True,
    stopped: Annotated[
        bool, typer.Option("--stopped", help="Also runs that stopped, as runs of the epochs that they completed.")
    ] = False,
    times: Annotated[
        bool, typer.Option("--times/--no-times", help="With their seconds, or without: others ran on the machine.")
    ] = True,
) -> None:
    """Make one small summary for each experiment: mean, deviation, n, seeds, run ids, versions. Only
    finished runs count, unless you say --stopped. They come to those that the summaries have; a setting's
    runs are replaced where all of its seeds ran again.

    \b
    repro results collect
    repro results collect --runs /scratch/runs --only convergence
    repro results collect --only convergence --replace      of these runs alone, without those that were there
    """
    from repro.report import from_run_folders, pool_seeds, summaries
    from repro.runs import lock, places
    from repro.screen import plural

    places.check_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    refused = list[str]()
    with lock.alone(out):  # of two at once, the later would drop what the earlier added
        existing = summaries.saved(out) if add else {}
        collected, left_out = from_run_folders.collect(runs, listed(only), stopped, times, existing)
        for name in collected.keys() & existing.keys():
            collected[name] = pool_seeds.pool(existing[name], collected[name], refused.append)
        written = summaries.save(collected, out)
    for path in written:
        groups = collected[path.stem]["groups"]
        runs_said = plural(sum(len(group["runs"]) for group in groups), "run")
        typer.echo(f"{path}: {runs_said} in {plural(len(groups), 'setting')}")
    for line in left_out + refused:
        typer.echo(f"left out, {line}")
    if collected and (unread := summaries.unread(out)):
        typer.echo(unread)
    if refused:
        raise typer.Exit(1)


def missing(
    overrides: Overrides = None,
    runs: Annotated[Path | None, typer.Option(help="A folder whose finished runs count too.")] = None,
) -> None:
    """List the runs of a sweep that no committed summary has, each as the command that makes it. A run counts on
    whatever images it was trained, and a longer one of its schedule has its epochs.

    \b
    repro results missing experiment=momentum nodes=32
    repro results missing experiment=families seed=0 --runs /scratch/runs
    """
    from repro.config import compose
    from repro.report import missing_runs, repeat, summaries
    from repro.screen import plural

    sweep = compose.typed(overrides or [])
    refuse_grid(sweep, overrides)
    left = missing_runs.find(sweep, summaries.load(runs=runs))
    for config in left:
        typer.echo(repeat.of_config(config.experiment, config, [config.seed]))
    typer.echo(f"in no summary: {len(left)} of {plural(len(sweep), 'run')}", err=True)


def docs(
    ctx: typer.Context,
    root: Annotated[Path, typer.Argument(help="The checkout.")] = Path("."),
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit code 1 if one is out of date.")] = False,
) -> None:
    """Write the tables and lists of the README and docs/ anew, from the code and the committed summaries.

    \b
    repro results docs
    repro results docs --check
    """
    from repro.report import pages, reference

    help_pages = reference.commands(ctx.find_root().command)
    stale = pages.update(root, not check, {"commands": lambda _, __: help_pages})
    for file in stale:
        typer.echo(f"{file} is out of date: repro results docs" if check else f"{file}: written")
    if not stale:
        typer.echo("Every page is up to date.")
    raise typer.Exit(1 if check and stale else 0)
