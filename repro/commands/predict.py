"""Defines `repro predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro.commands.status import RESULTS


def register(app: typer.Typer) -> None:
    app.command(short_help="Print the likeliest classes of images.")(predict)


def predict(
    network: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run, as of `repro export RUN`; or a .safetensors or .onnx file of it."),
    ],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="JPEG or PNG files.")],
    top: Annotated[int, typer.Option(min=1, help="So many classes of each image.")] = 5,
    results: Annotated[Path, typer.Option(help="Where the run folders are.")] = RESULTS,
) -> None:
    """Print the likeliest classes of images, by a run's trained network: the check that an export works.

    \b
    repro predict RUN photo.jpg
    repro predict net.onnx *.png --top 1

    An image is made ready as for the run's evaluation; one of another size is scaled, and its middle is taken.
    """
    from repro.train import classify

    classify.run(network, images, top, results)
