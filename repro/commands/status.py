"""Defines `repro status`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from repro.runs.status import Run

RESULTS = Path("results/runs")


def register(app: typer.Typer) -> None:
    app.command(short_help="Show how the runs stand.")(status)


def complete(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes experiments that have runs; every experiment where none has."""
    from repro.config.groups import group_options

    results = Path(ctx.params.get("results") or RESULTS)
    begun = sorted({path.parent.parent.name for path in results.glob("*/*/status.json")})
    return [name for name in begun or group_options("experiment") if name.startswith(incomplete)]


def status(
    experiment: Annotated[
        str | None, typer.Argument(autocompletion=complete, help="The runs of one experiment; all without it.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again every few seconds, until all is settled.")] = False,
    results: Annotated[Path, typer.Option(help="Where the run folders are.")] = RESULTS,
) -> None:
    """How the runs stand: done, running, pending, failed, preempted; last step, accuracy, time left.

    \b
    repro status
    repro status quickstart --watch
    repro status --results /scratch/me/runs

    It reads the run folders, and the queue where there is one: runs need not have been launched from here.
    """
    from repro import screen
    from repro.config.groups import group_options
    from repro.config.schema import ConfigError
    from repro.runs import status as state

    if results != RESULTS and not results.is_dir():
        raise ConfigError(f"--results {results}: there is no such folder.")
    if experiment is not None and experiment not in group_options("experiment"):
        begun = experiments(state.survey(results)[0])
        if experiment not in begun:
            raise ConfigError(
                f"{experiment}: no runs of it are under {results}; there are {', '.join(begun) or 'none'}."
            )
    answered = False
    while True:
        runs, problem = state.survey(results, experiment)
        if watch:
            typer.echo("\033[2J\033[H", nl=False)  # clear the terminal
        begun = experiments(state.survey(results)[0]) if experiment and not runs else []
        nothing = f"no runs under {results}: start one with `repro run` or `repro launch`"
        if begun:
            nothing = f"{experiment}: no runs of it are under {results}; there are {', '.join(begun)}"
        typer.echo(state.table(runs) if runs else nothing)
        if problem:
            typer.echo(screen.sentence(f"squeue: {problem}; what waits in the queue is not known"))
        answered = answered or not problem
        open_ = any(run.state in ("running", "pending") for run in runs)
        if not watch or not (open_ or (problem and answered)):  # a queue that answered once will again
            return
        time.sleep(5)


def experiments(runs: list[Run]) -> list[str]:
    return sorted({run.name.partition("/")[0] for run in runs})
