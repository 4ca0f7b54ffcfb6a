"""`repro run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def complete(ctx: typer.Context, incomplete: str) -> list[str]:
    from repro.complete import overrides

    return overrides(ctx.params.get("overrides") or [], incomplete)


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", autocompletion=complete, help="Settings; commas sweep."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the composed settings and stop.")] = False,
    manifest: Annotated[Path | None, typer.Option(help="A manifest of `repro launch`, with --line.")] = None,
    line: Annotated[int, typer.Option(help="Which run of the manifest.")] = 1,
) -> None:
    """Train one run, or every run of a sweep one after another.

    \b
    repro run experiment=quickstart                       three algorithms in about a minute, no download
    repro run model=resnet20 algo=gtopk nodes=32          the paper's largest cluster, on this machine
    repro run algo=dense,topk,gtopk nodes=4,8 data=digits epochs=2
    repro run model=vgg16 density=0.0005 density_warmup=[] network=ethernet10g
    repro run network.alpha_s=1e-4 network.beta_s_per_byte=1e-9
    repro run model=alexnet nodes=8 --show                every key and its value

    A run that is done is not run again, an unfinished one goes on from its last checkpoint: type the same
    command.
    """
    from repro import config, launch

    if manifest is not None and overrides:
        raise config.ConfigError("--manifest has all settings already; leave out KEY=VALUE")
    configs = config.compose(overrides or []) if manifest is None else [launch.read_line(manifest, line)]
    if show:
        typer.echo("---\n".join(config.to_yaml(one) for one in configs), nl=False)
        return
    if configs[0].tradeoff.bits_per_s:
        from repro import tradeoff

        tradeoff.run(configs, typer.echo)
        return
    from repro import sweep

    raise typer.Exit(sweep.run(configs))
