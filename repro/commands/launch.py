"""`repro launch`."""

from __future__ import annotations

from typing import Annotated

import typer


def complete(ctx: typer.Context, incomplete: str) -> list[str]:
    from repro.complete import overrides

    return overrides(ctx.params.get("words") or [], incomplete)


def register(app: typer.Typer) -> None:
    app.command()(launch)


def launch(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE... [-- SBATCH OPTIONS]",
            autocompletion=complete,
            help="Settings; commas sweep.",
        ),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Just the runs in this state: failed, preempted, new.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be submitted.")] = False,
) -> None:
    """Submit a sweep to SLURM, one array per number of nodes, and return.

    \b
    repro launch experiment=quickstart --dry-run
    repro launch model=resnet20 algo=dense,topk,gtopk nodes=4,8,16,32
    repro launch algo=gtopk seed=0,1,2 -- --partition=gpu --gpus-per-task=1 --time=4:00:00
    repro launch experiment=quickstart --only failed      the same sweep again, just what failed

    What is done, running or in the queue is left out: the same command submits what is missing. Without
    SLURM it writes the manifests and says how to run them here. `repro status` shows how it goes.
    """
    from repro import config, status
    from repro import launch as submission

    if only is not None and only not in status.OPEN:
        raise config.ConfigError(f"--only {only}: choose one of {', '.join(status.OPEN)}")
    given = words or []
    cut = next((n for n, word in enumerate(given) if word.startswith("-")), len(given))
    for text in submission.launch(config.compose(given[:cut]), only, dry_run, given[cut:]):
        typer.echo(text)
