"""`repro status`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(status)


def status(
    experiment: Annotated[str | None, typer.Argument(help="The runs of one experiment; all without it.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again every few seconds, until all is settled.")] = False,
    results: Annotated[Path, typer.Option(help="Where the run folders are.")] = Path("results/runs"),
) -> None:
    """How the runs stand: done, running, pending, failed, preempted; last step, accuracy, time left.

    \b
    repro status
    repro status quickstart --watch
    repro status --results /scratch/me/runs

    It reads the run folders, and the queue where there is one: runs need not have been launched from here.
    """
    from repro import status as state

    while True:
        runs = state.survey(results, experiment)
        if watch:
            typer.echo("\033[2J\033[H", nl=False)  # clear the terminal
        nothing = f"no runs under {results}: start one with `repro run` or `repro launch`"
        typer.echo(state.table(runs) if runs else nothing)
        if not watch or all(run.state not in ("running", "pending") for run in runs):
            return
        time.sleep(5)
