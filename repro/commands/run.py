"""Defines `repro run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from repro.commands.overrides import Overrides, complete_key, refuse_grid

if TYPE_CHECKING:
    from repro.cluster.ranks import Rank
    from repro.config.schema import Config
    from repro.data import Dataset
    from repro.train.time_left import Forecast


def register(app: typer.Typer) -> None:
    app.command(short_help="Train one run, or every run of a sweep.")(run)


def run(
    overrides: Overrides = None,
    show: Annotated[bool, typer.Option("--show", help="Print the composed settings and stop.")] = False,
    explain: Annotated[
        str | None,
        typer.Option(metavar="KEY", autocompletion=complete_key, help="Say what a key does, and its source, and stop."),
    ] = None,
    manifest: Annotated[Path | None, typer.Option(help="A manifest of `repro launch`, with --line.")] = None,
    line: Annotated[int | None, typer.Option(help="Which run of the manifest.  [default: 1]")] = None,
) -> None:
    """Train one run, or every run of a sweep one after another.

    \b
    repro run experiment=quickstart                       three algorithms in 1 to 2 minutes, no download
    repro run model=resnet20 algo=gtopk nodes=32          the paper's largest cluster, on this machine
    repro run algo=dense,topk,gtopk nodes=4,8 data=digits epochs=2
    repro run model=vgg16 density=0.0005 density_warmup=[] network=ethernet10g
    repro run network.alpha_s=1e-4 network.beta_s_per_byte=1e-9
    repro run model=alexnet nodes=8 --show                every key and its value
    repro run --explain density                           what a key does, its range, default and source

    A run that is done is not run again, an unfinished one goes on from its last checkpoint: type the same
    command.
    """
    if explain is not None:
        from repro import screen
        from repro.config.explain import explain as lines

        typer.echo("\n".join(screen.indented(line) for line in lines(explain)))
        return
    from repro.cluster import slurm
    from repro.config import compose

    if manifest is not None and overrides:
        raise compose.ConfigError("--manifest has all settings already; leave out KEY=VALUE")
    if manifest is None and line is not None:
        raise compose.ConfigError(f"--line {line} needs --manifest FILE")
    number = 1 if line is None else line
    configs = compose.typed(overrides or []) if manifest is None else [slurm.read_line(manifest, number)]
    if show:
        from repro.config.show import text

        typer.echo("---\n".join(map(text, configs)), nl=False)
        return
    refuse_grid(configs, overrides)
    from repro.train import sweep

    try:
        code = sweep.run(configs, before_a_run, None if manifest else overrides or [], forecast)
    except compose.ConfigError as error:
        if manifest is not None:
            refused(configs[0], str(error))
        raise
    raise typer.Exit(code)


def refused(config: Config, error: str) -> None:
    """Leaves word of a launched run that could not begin; of its ranks the first does."""
    from repro.cluster import environment
    from repro.runs import status_file

    place = environment.discover()
    if place is None or place.rank == 0:
        status_file.refused(config, error)


def forecast(configs: list[Config]) -> Forecast:
    """Calls that of `repro.timing`, which imports torch."""
    from repro.timing import forecast

    return forecast.of(configs)


def before_a_run(config: Config, rank: Rank, data: Dataset) -> list[dict[str, Any]]:
    """Calls that of `repro.timing`, which imports torch: a run that is done needs neither."""
    from repro.timing import before_run

    return before_run.before_a_run(config, rank, data)
