"""Defines `repro export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro.commands.status import RESULTS


def register(app: typer.Typer) -> None:
    app.command(short_help="Write a trained network for other programs.")(export)


def complete(incomplete: str) -> list[str]:
    return [name for name in ("safetensors", "torch-export", "onnx") if name.startswith(incomplete)]


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or a run's name under --results.")],
    format_: Annotated[
        str, typer.Option("--format", autocompletion=complete, help="safetensors, torch-export or onnx.")
    ] = "safetensors",
    out: Annotated[
        Path | None, typer.Option(help="The file.  [default: the run's name, and the format's ending]")
    ] = None,
    results: Annotated[Path, typer.Option(help="Where the run folders are.")] = RESULTS,
) -> None:
    """Write a run's trained network to a file that other programs read, from its last good checkpoint.

    \b
    repro export RUN                                  state dict: PyTorch and torchvision, by the layers' names
    repro export RUN --format onnx --out net.onnx     ONNX Runtime and what is built on it
    repro export RUN --format torch-export            a graph for torch.export.load, without the network's code

    It is the network that the run's evaluation sees: BatchNorm's statistics, and weights where the algorithm lets them
    differ, are the mean over the nodes. Class names, preprocessing and training stand in the file's metadata.
    """
    from repro.train import export, trained

    export.run(trained.folder_of(run, results), format_, out)
