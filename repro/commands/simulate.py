"""`repro simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OWN = ("node", "parameters")  # keys of this command beside those of `repro run`


def register(app: typer.Typer) -> None:
    app.command()(simulate)


def simulate(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings; commas sweep, dots double; node=, parameters=."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the rows as JSON here.")] = None,
) -> None:
    """Iteration time of many nodes, from the algorithms' own messages and the cost model; nothing is trained.

    \b
    repro simulate model=resnet50 algo=dense,topk,gtopk,gtopk_butterfly nodes=4,8,...,1024
    repro simulate model=vgg16 nodes=8,32 network=ethernet10g node=0.14+0.09
    repro simulate model=resnet20 nodes=3,5,6,7,12,31 network=results/lab/network.yaml node=measured
    repro simulate parameters=26214400 nodes=4,8,...,128        the left half of the authors' model figure

    node=paper (the default) is the published throughput of one node; node=measured times this machine;
    node=0.14+0.09 states seconds of compute and of compress. Without algo=, all four are compared.
    """
    from repro import config, simulate
    from repro.numbers import counts, doubled

    own, rest = {"node": "paper", "algo": "dense,topk,gtopk,gtopk_butterfly"}, []
    for text in overrides or []:
        key, _, value = text.partition("=")
        if key in (*OWN, "algo"):
            own[key] = value
        else:
            rest.append(f"{key}={doubled(value)}" if key == "nodes" else text)
    sizes = counts("parameters", doubled(own["parameters"])) if "parameters" in own else None
    configs = config.compose([f"algo={own['algo']}", *rest])
    simulate.run(configs, own["node"], sizes, out)
