"""Defines `repro launch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from repro.commands.overrides import complete, refuse_grid


def register(app: typer.Typer) -> None:
    app.command(cls=Launch, short_help="Submit a sweep to SLURM.")(launch)


class Launch(TyperCommand):
    """Tells who leaves out the two dashes before sbatch's options where they belong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {option for parameter in self.get_params(ctx) for option in parameter.opts}
        before = args[: args.index("--")] if "--" in args else args
        for word in before:
            if word.startswith("--") and word.partition("=")[0] not in known:
                from repro.config.groups import near
                from repro.config.schema import ConfigError

                raise ConfigError(
                    f"{word}: repro launch has no such option.{near(word, sorted(known), '{}')} Options of sbatch "
                    f"stand after two dashes: repro launch KEY=VALUE ... -- {word}"
                )
        return super().parse_args(ctx, args)


def launch(
    overrides: Annotated[
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
    from repro.cluster import slurm as submission
    from repro.config import compose
    from repro.runs import done, lock, places, same_data, status
    from repro.train import combinations

    if only is not None and only not in submission.OPEN:
        raise compose.ConfigError(f"--only {only}: choose one of {', '.join(submission.OPEN)}")
    given = overrides or []
    cut = next((n for n, word in enumerate(given) if word.startswith("-")), len(given))
    typed = compose.typed(given[:cut])
    refuse_grid(typed, given[:cut])
    configs = same_data.chosen(typed, typer.echo)
    for config in configs:  # whether there is a GPU is for the node to say that it runs on
        combinations.check(submission.as_submitted(config))
    if not dry_run:
        places.check_folder(Path(configs[0].results), "Name another place with results=FOLDER.")
    for text in done.of_other_code(configs):
        typer.echo(f"warning: {text}")
    for text in submission.launch(configs, only, dry_run, given[cut:], status.states, lock.in_turn):
        typer.echo(text)
