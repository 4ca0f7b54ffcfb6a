"""Defines `repro tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro.commands.overrides import OF_THE_LAB, completing, refuse, take, words

OWN = {  # keys of this command
    "node": "measured", "relax": "compressed", "target": "", "bucket_mb": "null,1,4,25", "algo.wire": "pairs,gaps",
}  # fmt: skip
CHOSEN = ("overlap", "scope")  # with each size of buckets
WHY_CHOSEN = "the planner chooses it: buckets overlap, and a sparse algorithm selects from each"
CANDIDATES = {"algo": "all", "density": "0.001,0.01"}  # what is swept unless the user names it


def listed() -> dict[str, tuple[str, ...]]:
    """Returns this command's own keys, and the values that can be listed."""
    from repro.config.counts import PROFILES, RELAXES

    return {**dict.fromkeys(OWN, ()), "node": PROFILES, "relax": RELAXES}


def register(app: typer.Typer) -> None:
    app.command(short_help="Rank algorithms and buckets by predicted time.")(tune)


def tune(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            autocompletion=completing(listed),
            help="Settings as of repro run; node=, relax=, target=.",
        ),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Train with the first of the ranking.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the whole ranking as JSON here.")] = None,
) -> None:
    """Rank algorithms, densities and buckets by the predicted seconds of an iteration, and say why.

    \b
    repro tune model=vgg16 nodes=8 network=ethernet1g
    repro tune model=resnet20 nodes=16 network=results/lab/network.yaml     as repro bench network measured it
    repro tune model=vgg16 nodes=8 network.alpha_s=1e-4 network.beta_s_per_byte=1e-9
    repro tune model=vgg16 nodes=32 node=paper batch_per_node=128 relax=all --out plan.json
    repro tune model=resnet20 nodes=4 target=0.75 --run
    repro tune model=vgg16 nodes=8 algo=dense,gtopk density=0.001 bucket_mb=null,25 node=0.14+0.02

    What is ranked unless you type others: algo=all density=0.001,0.01 bucket_mb=null,1,4,25 algo.wire=pairs,gaps, of
    which the last two give the same bits.
    node=measured (the default) times compute here; node=paper takes the published, of the published batch alone;
    node=0.14 states seconds of compute. Compress is timed here with each of these; node=0.14+0.02 states that too.
    relax=exact: every
    node applies the mean gradient; relax=compressed (the default): or one approximation of it; relax=all: or averages
    weights, in the background too.
    target=0.75 ranks by the time to that test accuracy, of text target=150 to that perplexity: epochs of committed
    curves, all on one schedule and of one number of nodes, times the predicted iteration, with the range over seeds,
    or within one run; a dash and its best value where a curve never gets there.
    """
    from repro import screen
    from repro.config import compose
    from repro.config.counts import node_seconds
    from repro.runs import places
    from repro.runs.progress import extent

    refuse(overrides, CHOSEN, WHY_CHOSEN, ", and type the sizes to rank, as bucket_mb=null,25")
    refuse(overrides, *OF_THE_LAB)
    refuse(overrides, ("cluster.delay_s",), "what messages wait on top is not predicted")
    refuse(overrides, ("stages", "cuts"), "pipelines are predicted by `repro strategies`")
    values, rest = take(overrides, OWN)
    swept, given = take(rest, CANDIDATES)
    typed = values["bucket_mb"].split(",")
    sizes = list(dict.fromkeys(None if size == "null" else number("bucket_mb", size, 0) for size in typed))
    node_seconds(values["node"])
    if out is not None:
        places.check_file(out)
    algo = swept["algo"].partition(",")[0]  # to which algo.KEY= in `given` belongs
    first, *others = compose.compose([*given, f"algo={'dense' if algo == 'all' else algo}"])
    if others:
        raise compose.ConfigError("repro tune ranks for one model, number of nodes and network; leave other commas out")
    least, most = (1, float("inf")) if first.data.metric.falls else (0, 1)  # perplexity is at least 1
    target = number("target", values["target"], least, most) if values["target"] else None
    configs = compose.compose([*given, *words(swept)])
    if configs[0].nodes == 1:
        raise compose.ConfigError("nodes=1: one node sends nothing, so there is nothing to choose; type nodes=8")
    from repro.timing import before_run, candidates, node_profile, plan_report, planner, to_target
    from repro.train import sweep

    if values["node"] == "paper":
        node_profile.check_published(configs[0])
    node_profile.set_threads(configs[0])
    groups = to_target.trained() if target is not None else []
    wires = list(dict.fromkeys(values["algo.wire"].split(",")))
    choices = planner.rank(candidates.allowed(configs, values["relax"], sizes, wires), values["node"], target, groups)
    screen.show(plan_report.rows(choices))
    lines = [*candidates.left_out(configs), *plan_report.why(choices, values["node"])]
    typer.echo("\n" + "\n".join(map(screen.sentence, lines)))
    if target is not None:
        typer.echo("\n".join(plan_report.of_target(choices, target, groups)))
    command = plan_report.run_command(choices[0], given)
    typer.echo(f"Train with it ({extent(choices[0].config)}; epochs=1 tries it):\n  {command}")
    if out is not None:
        plan_report.write(choices, values["node"], given, out)
    if run:
        raise typer.Exit(sweep.run([choices[0].config], before_run.before_a_run, [*given, *choices[0].keys]))


def number(key: str, text: str, above: float, high: float = float("inf")) -> float:
    """Returns `text` as a number above `above` and at most `high`. Raises ConfigError."""
    from repro.config.schema import ConfigError

    try:
        value = float(text)
    except ValueError:
        value = above
    if not above < value <= high:
        limit = f" and at most {high:g}" if high < float("inf") else ""
        raise ConfigError(f"{key}={text}: expected a number above {above:g}{limit}.")
    return value
