"""`repro tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OWN = {"node": "measured", "relax": "compressed", "target": "", "bucket_mb": "null,1,4,25"}  # keys of this command
CANDIDATES = {"algo": "all", "density": "0.001,0.01"}  # what is swept unless the user says what


def register(app: typer.Typer) -> None:
    app.command()(tune)


def tune(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings as of repro run; node=, relax=, target=."),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Train with the first of the ranking.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the whole ranking as JSON here.")] = None,
) -> None:
    """Rank algorithms, densities and buckets by the predicted seconds of an iteration, and say why.

    \b
    repro tune model=vgg16 nodes=8 network=ethernet1g
    repro tune model=resnet20 nodes=16 network=results/lab/network.yaml     as repro bench network measured it
    repro tune model=vgg16 nodes=8 network.alpha_s=1e-4 network.beta_s_per_byte=1e-9
    repro tune model=resnet50 nodes=32 node=paper relax=all --out plan.json
    repro tune model=resnet20 nodes=4 target=0.7 --run
    repro tune model=vgg16 nodes=8 algo=dense,gtopk density=0.001 bucket_mb=null,25 node=0.14+0.02

    node=measured (the default) times compute here; node=paper takes the article's; node=0.14 states seconds of compute,
    node=0.14+0.02 of compress too, which else is timed here. relax=exact: every node applies the mean gradient;
    relax=compressed (the default): or one approximation of it; relax=all: or averages weights, in the background too.
    target=0.7 ranks by the time to that test accuracy where a committed convergence run reached it.
    """
    from repro import config, planner, sweep

    own, given, swept = dict(OWN), [], dict(CANDIDATES)
    for text in overrides or []:
        key, _, value = text.partition("=")
        if key in own:
            own[key] = value
        elif key in swept:
            swept[key] = value
        else:
            given.append(text)
    target = number("target", own["target"], 0, 1) if own["target"] else None
    sizes = [None if size == "null" else number("bucket_mb", size, 0) for size in own["bucket_mb"].split(",")]
    if len(config.compose([*given, "algo=dense"])) > 1:
        raise config.ConfigError("repro tune ranks for one model, number of nodes and network; leave other commas out")
    configs = config.compose([*given, *(f"{key}={value}" for key, value in swept.items())])
    if configs[0].nodes == 1:
        raise config.ConfigError("nodes=1: one node sends nothing, so there is nothing to choose; type nodes=8")
    planner.threads(configs[0])
    groups = planner.trained() if target is not None else []
    choices = planner.rank(planner.candidates(configs, own["relax"], sizes), own["node"], target, groups)
    sweep.table(planner.rows(choices))
    lines = planner.why(choices)
    if target is not None and choices[0].to_target_s is None:
        lines.append(f"target={target:g}: no committed run of these on {configs[0].model.name} reached it")
    command = planner.run_command(choices[0], given)
    typer.echo("\n" + "\n".join([*lines, f"Train with it: {command}"]))
    if out is not None:
        planner.write(choices, own["node"], given, out)
    if run:
        raise typer.Exit(sweep.run([choices[0].config]))


def number(key: str, text: str, above: float, high: float = float("inf")) -> float:
    """Raises ConfigError."""
    from repro.schema import ConfigError

    try:
        value = float(text)
    except ValueError:
        value = above
    if not above < value <= high:
        limit = f" and at most {high:g}" if high < float("inf") else ""
        raise ConfigError(f"{key}={text}: expected a number above {above:g}{limit}.")
    return value
