"""Defines `repro plot figures`, `repro plot tables` and `repro plot list`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro.commands.overrides import listed


def complete(incomplete: str) -> list[str]:
    from repro import figures

    return [name for name in figures.names() if name.startswith(incomplete)]


FIGURES, TABLES = Path("results/figures"), Path("results/tables")  # committed
Only = Annotated[list[str] | None, typer.Option("--only", autocompletion=complete, help="These items, with commas.")]
Runs = Annotated[Path | None, typer.Option(help="Run folders whose finished runs go over the committed summaries.")]
Alone = Annotated[bool, typer.Option("--alone", help="Show these runs with what was published, nothing committed.")]


def check_folder(out: Path, alone: bool) -> None:
    """Raises ConfigError for a folder that cannot be written, and for one whose committed files would be lost."""
    from repro.config.schema import ConfigError
    from repro.runs import places

    if alone and out in (FIGURES, TABLES):
        raise ConfigError(f"--alone would put these runs in place of what is committed in {out}; type --out mine too")
    places.check_folder(out)


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command()(figures)
    group.command()(tables)
    group.command("list")(list_)
    app.add_typer(group, name="plot", help="The paper's figures and tables, with what was obtained here.")


def figures(
    only: Only = None,
    runs: Runs = None,
    alone: Alone = False,
    out: Annotated[Path, typer.Option(help="Where the files go.")] = FIGURES,
    formats: Annotated[str, typer.Option("--format", help="Of pdf, png, svg; several with commas.")] = "pdf,png",
    no_notes: Annotated[bool, typer.Option("--no-notes", help="Captions go into NAME.txt and NAME.tex.")] = False,
    width: Annotated[str, typer.Option(help="single or double: columns of a page.  [default: the figure's own]")] = "",
) -> None:
    """Draw the figures, each with the plotted numbers as CSV beside it.

    \b
    repro plot figures                                 from the committed summaries
    repro plot figures --runs results/runs             with the runs of this machine
    repro plot figures --runs results/runs --alone --out mine            of this machine's runs alone
    repro plot figures --only convergence --format svg --out paper/
    repro plot figures --no-notes --width single --out paper/    for a paper: \\input{NAME.tex} has the caption
    """
    from repro.report import write_items

    check_folder(out, alone)
    write_items.figures(listed(only), runs, out, formats.split(","), typer.echo, not no_notes, width, alone)


def tables(
    only: Only = None,
    runs: Runs = None,
    alone: Alone = False,
    out: Annotated[Path, typer.Option(help="Where the files go.")] = TABLES,
) -> None:
    """Write the tables as Markdown, LaTeX (booktabs) and CSV.

    \b
    repro plot tables
    repro plot tables --only claims,speedups --runs results/runs
    """
    from repro.report import write_items

    check_folder(out, alone)
    write_items.tables(listed(only), runs, out, typer.echo, alone)


def list_(runs: Runs = None) -> None:
    """Every figure and table, whether there is data of ours behind it, and the command that makes it.

    \b
    repro plot list
    """
    from repro import screen
    from repro.report import write_items

    screen.show(write_items.overview(runs, typer.echo))
