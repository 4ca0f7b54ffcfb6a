"""`repro report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(report)


def report(
    out: Annotated[Path, typer.Option(help="The page.")] = Path("results/report.html"),
    runs: Annotated[Path | None, typer.Option(help="Run folders that go over the committed summaries.")] = None,
) -> None:
    """One self-contained page: each claim with its verdict, every figure and table, and the commands that make them.

    \b
    repro report
    repro report --runs results/runs --out report.html
    """
    from repro import report as page
    from repro import results

    page.write(results.load(runs=runs), out)
    typer.echo(f"{out}: {out.stat().st_size / 1e6:.1f} MB, nothing in it is loaded from elsewhere")
