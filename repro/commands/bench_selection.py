"""Defines `repro bench selection`, `repro bench merge` and `repro bench gradient`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro.commands.overrides import Overrides, refuse_unread, single

READ = (  # by `repro bench gradient`
    "model", "data", "experiment", "seed", "nodes", "batch_per_node", "lr", "momentum", "weight_decay", "clip_grad",
    "density", "on_bad_image",
)  # fmt: skip


def selection(
    parameters: Annotated[str, typer.Option(help="Sizes, with commas; k and M are understood.")] = (
        "270k,14.7M,25.6M,61.1M"
    ),
    densities: Annotated[str, typer.Option(help="Densities, with commas.")] = "0.0001,0.001,0.01",
    threads: Annotated[str, typer.Option(help="Intra-op threads, with commas.")] = "1,2",
    recorded: Annotated[list[Path] | None, typer.Option(help="A file of `repro bench gradient`.")] = None,
    repeats: Annotated[int, typer.Option(min=3, help="Of each measurement.")] = 15,
    out: Annotated[Path, typer.Option(help="Where the files go.")] = Path("results/speed"),
) -> None:
    """Measure selection beside torch.topk, argpartition and the machine's copy.

    \b
    repro bench selection --parameters 270k --threads 1 --out /tmp/selection
    repro bench selection --recorded vgg16.pt --recorded resnet20.pt

    over_copy and over_add: times as long as a copy, as an addition in place; topk_over: torch.topk takes so
    many times as long. The selection itself uses one thread; torch and numpy may use more.
    """
    from repro.config.counts import counts
    from repro.config.schema import ConfigError
    from repro.runs import places
    from repro.timing import bench_selection

    places.check_folder(out)
    try:
        shares = [float(text) for text in densities.split(",")]
    except ValueError:
        shares = []
    if not shares or not all(0 < share <= 1 for share in shares):
        raise ConfigError(f"--densities {densities}: numbers above 0 and up to 1, such as 0.001,0.01.")
    sizes, cores = counts("--parameters", parameters), counts("--threads", threads)
    bench_selection.measure(sizes, shares, cores, recorded or [], repeats, out)
    typer.echo(f"written: {out / 'selection.jsonl'}, {out / 'selection.pdf'}")


def merge(
    repeats: Annotated[int, typer.Option(min=3, help="Of each measurement.")] = 300,
    out: Annotated[Path, typer.Option(help="Where the file goes.")] = Path("results/speed"),
) -> None:
    """Measure merging, summing and scattering sparse vectors of 25,000 and 61,000 entries, on one thread.

    \b
    repro bench merge --out /tmp/selection
    """
    from repro.runs import places
    from repro.timing import bench_selection

    places.check_folder(out)
    bench_selection.measure_merges(repeats, out)
    typer.echo(f"written: {out / 'merge.jsonl'}")


def gradient(
    overrides: Overrides = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps before.")] = 20,
    out: Annotated[Path, typer.Option(help="The file.")] = Path("gradient.pt"),
) -> None:
    """Record a gradient and its residual from real training, for `repro bench selection`.

    \b
    repro bench gradient model=resnet20 data=cifar10 --out resnet20.pt
    repro bench gradient model=alexnet data=synthetic data.image_size=224 batch_per_node=8 --out alexnet.pt
    """
    from repro.runs import places

    why = "repro bench gradient is a plain loop, which does not read it"
    refuse_unread(overrides, READ, why, ", and the option --steps")
    from repro.timing import bench_selection

    places.check_file(out)
    one = single(overrides, {"nodes": "1"}, "repro bench gradient")
    typer.echo(f"written: {out} ({bench_selection.record(one, steps, out)})")
