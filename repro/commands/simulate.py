"""Defines `repro simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro.commands.overrides import OF_THE_LAB, UNREAD, completing, refuse, take

# keys of this command, and those of `repro run` that it reads differently
OWN = {"node": "paper", "parameters": "", "algo": "dense,topk,gtopk,gtopk_butterfly", "nodes": ""}


def listed() -> dict[str, tuple[str, ...]]:
    """Returns this command's own keys, and the values that can be listed."""
    from repro.config.counts import PROFILES

    return {"node": PROFILES, "parameters": ()}


def register(app: typer.Typer) -> None:
    app.command(short_help="Predict iteration times on many nodes.")(simulate)


def simulate(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            autocompletion=completing(listed),
            help="Settings; commas sweep, dots double; node=, parameters=.",
        ),
    ] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--run", help="A finished run, or an experiment's folder, on network=; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the rows as JSON here.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the messages to this folder as Chakra execution traces, one a node.")
    ] = None,
) -> None:
    """Iteration time of many nodes, from the algorithms' own messages and the cost model; nothing is trained.

    \b
    repro simulate model=resnet50 algo=dense,topk,gtopk,gtopk_butterfly nodes=4,8,...,1024
    repro simulate model=vgg16 nodes=8,32 network=ethernet10g node=0.14+0.09
    repro simulate model=resnet20 nodes=3,5,6,7,12,31 network=results/lab/network.yaml node=measured
    repro simulate model=resnet50 algo=gtopk nodes=32 --trace traces     for ASTRA-sim and others
    repro simulate parameters=26214400 nodes=4,8,...,128        the left half of the authors' model figure
    repro simulate --run results/runs/quickstart network=ethernet10g        finished runs on another network

    node=paper (the default) is the published throughput of one node, with the published compress of gTop-k for every
    sparse algorithm; node=measured times this machine; node=0.14+0.09 states seconds of compute and of compress. Of an
    algorithm whose compress is not known there is a dash, no iteration time. Without algo=: dense, Top-k, gTop-k
    and its butterfly.
    In the table closed form is communication by the algorithm's cost formula, as plotted by what the authors' figure of
    their model draws, and efficiency the throughput over that of nodes that never wait.
    """
    from repro.config import compose, sweeps
    from repro.config.counts import counts, doubled, node_seconds
    from repro.runs import places

    refuse(overrides, *OF_THE_LAB)
    if not runs:
        refuse(overrides, UNREAD, "nothing is trained here, and what is simulated does not depend on it")
    given = sweeps.once(overrides or [])
    values, rest = take(overrides, OWN)
    sizes = (
        list(dict.fromkeys(counts("parameters", doubled("parameters", values["parameters"]))))
        if values["parameters"]
        else None
    )
    nodes = [f"nodes={doubled('nodes', values['nodes'])}"] if values["nodes"] else []
    node_seconds(values["node"])
    if out is not None:
        places.check_file(out)
    if trace is not None:
        places.check_folder(trace, "Name another place with --trace.")
    if runs and trace is not None:
        raise compose.ConfigError("--trace is not for --run, whose messages are known by their sums; leave it out")
    if runs:
        _runs(runs, given, overrides or [], out)
        return
    configs = compose.compose([f"algo={values['algo']}", *rest, *nodes])
    from repro.timing import node_profile, simulate

    for config in configs if values["node"] == "paper" else []:
        seconds = node_profile.published(config)
        if {"batch_per_node", "accumulate"} & {*given}:  # else the published batch is meant
            node_profile.check_samples(seconds, config)
        node_profile.check_published(config)
    simulate.run(configs, values["node"], sizes, out, trace)


def _runs(runs: list[Path], given: list[str], overrides: list[str], out: Path | None) -> None:
    """Models finished runs on the networks that were typed. Raises ConfigError for any other setting."""
    from repro.config import compose
    from repro.timing import rerun

    if wrong := [key for key in given if key.partition(".")[0] != "network"]:
        raise compose.ConfigError(f"{wrong[0]}=: a finished run keeps its settings; --run takes network= alone.")
    if not given:
        raise compose.ConfigError("--run needs another network: type network=ethernet10g")
    rerun.run(runs, [config.network for config in compose.compose(overrides)], out)
