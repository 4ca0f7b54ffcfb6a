"""Defines `repro report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command(short_help="Write one page with all claims and figures.")(report)


def report(
    out: Annotated[Path, typer.Option(help="The page.")] = Path("results/report.html"),
    runs: Annotated[Path | None, typer.Option(help="Run folders that go over the committed summaries.")] = None,
) -> None:
    """One self-contained page: each claim with its verdict, every figure and table, and the commands that make them.

    \b
    repro report
    repro report --runs results/runs --out report.html
    """
    from repro import screen
    from repro.report import html as page
    from repro.report import summaries
    from repro.runs import places

    places.check_file(out)
    data = summaries.load(runs=runs)
    for line in data.left_out:
        typer.echo(f"left out, {line}")
    page.write(data, out)
    typer.echo(f"{out}: {screen.size(out.stat().st_size)}, nothing in it is loaded from elsewhere")
