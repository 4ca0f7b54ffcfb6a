"""`repro data status` and `repro data prepare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Root = Annotated[Path, typer.Option(help="Where the data sets are: data.root of the runs.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command()(status)
    group.command()(prepare)
    app.add_typer(group, name="data", help="What data sets are here, and making them ready.")


def complete(incomplete: str) -> list[str]:
    from repro.choices import group_options

    return [name for name in group_options("data") if name.startswith(incomplete)]


def status(root: Root = Path("data")) -> None:
    """Which data sets are ready, and how to get the others.

    \b
    repro data status
    repro data status --root /scratch/data
    """
    from repro import data
    from repro.sweep import table

    table([
        {
            "data": row["name"],
            "state": row["state"],
            "size": f"{row['size'] / 1e6:.0f} MB" if row["size"] else "",
            "where": str(row["path"] or ""),
            "how": "" if row["state"] == "ready" and row["path"] else row["how"],
        }
        for row in data.status(root)
    ])  # fmt: skip


def prepare(
    name: Annotated[str, typer.Argument(autocompletion=complete, help="The data set.")],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="PATH", help="A folder or file here, instead of a download."),
    ] = None,
    root: Root = Path("data"),
) -> None:
    """Make a data set ready: download or import it, check it, and pack it.

    \b
    repro data prepare cifar10
    repro data prepare cifar10 --from cifar10.zip         an archive, a zip or a folder of class folders
    repro data prepare imagenet --from FOLDER   with train/CLASS/*.JPEG and val/CLASS/*.JPEG
    """
    from repro import data

    typer.echo(f"{name} is ready: {data.prepare(name, source, root)}")
