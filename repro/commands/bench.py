"""Defines `repro bench` with network, collectives, step and regret, and adds the commands of `bench_selection`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro.commands import tune
from repro.commands.bench_selection import gradient, merge, selection
from repro.commands.overrides import Overrides, refuse, refuse_unread, single

OF_MESSAGES = ("network", "cluster", "nodes", "device", "timeout_s")  # what they depend on
STATED = ("node", "compute_s")

Out = Annotated[Path, typer.Option(help="Where the files go.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    group.command()(network)
    group.command()(collectives)
    group.command()(step)
    group.command()(regret)
    group.command()(selection)
    group.command()(merge)
    group.command()(gradient)
    app.add_typer(group, name="bench", help="Measure links, collectives, selection, merging and steps.")


def network(
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the files go: results/lab, or results/network outside of the lab.")
    ] = None,
) -> None:
    """Measure one-way time against message size between two nodes, and fit alpha and beta.

    \b
    repro bench network                                  two nodes of the lab at 1 Gbps
    repro bench network network=ethernet100m --out /tmp/slow
    srun --nodes=2 --ntasks-per-node=1 python -m repro bench network   between two machines, not in the lab
    repro run network=results/lab/network.yaml           use what was measured
    """
    from repro.cluster.environment import discover
    from repro.runs import places
    from repro.timing import bench_links

    reason = "repro bench network sends messages alone, which do not depend on it"
    refuse_unread(overrides, OF_MESSAGES, reason, but=STATED)
    cluster = "environment" if discover() else "lab"
    one = single(overrides, {"cluster": cluster, "nodes": "2"}, "repro bench network")
    out = out or Path("results", "lab" if one.cluster.name == "lab" else "network")
    places.check_folder(out)
    bench_links.measure_network(one, out, typer.echo)


def collectives(
    overrides: Overrides = None,
    parameters: Annotated[
        str, typer.Option(help="Sizes of the gradient, with commas; k and M are understood.")
    ] = "270k,2.7M,14.7M,25.6M,61.1M",
    repeats: Annotated[int, typer.Option(min=3, help="Of each measurement.")] = 10,
    out: Annotated[Path, typer.Option(help="Where the rows go, one JSON object a line.")] = Path(
        "results/lab/collectives.jsonl"
    ),
) -> None:
    """Measure the algorithms' messages in the lab, beside the model and the lower bound.

    \b
    repro bench collectives nodes=4 --parameters 270k
    repro bench collectives algo=dense,gtopk nodes=2,4,8 network=results/lab/network.yaml
    repro bench collectives algo=gtopk,gtopk_butterfly nodes=3,5,6,7,12,31 --parameters 14.7M
    repro bench collectives algo=ddp algo.hook=none,fp16,powersgd nodes=4   PyTorch's own

    Modelled with the network's alpha and beta: calibrate them first with `repro bench network`.
    """
    from repro.config import compose
    from repro.config.counts import counts
    from repro.runs import places

    reason = "repro bench collectives sends gradients of --parameters, made up here, which do not depend on it"
    refuse_unread(overrides, (*OF_MESSAGES, "algo", "density"), reason, but=STATED)
    defaults = {"cluster": "lab", "algo": "dense,topk,gtopk,gtopk_butterfly", "nodes": "2,4,8,16"}
    sizes = counts("--parameters", parameters)
    configs = compose.typed(overrides or [], defaults)
    places.check_file(out)
    for config in configs:
        if config.nodes == 1:
            raise compose.ConfigError("nodes=1: one node sends nothing that could be measured; type nodes=2 or more.")
    from repro.timing import bench_collectives

    bench_collectives.measure_collectives(configs, sizes, repeats, out)
    typer.echo(f"written: {out}")


def step(
    overrides: Overrides = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each measurement.")] = 4,
    repeats: Annotated[int, typer.Option(min=1, help="Of each measurement.")] = 5,
    out: Out = Path("results/speed"),
) -> None:
    """Measure what P local ranks cost over a plain training loop on the same batches.

    \b
    repro bench step model=resnet20 algo=gtopk nodes=32
    repro bench step model=vgg16 algo=dense,gtopk nodes=8 --steps 1
    """
    from repro.config import compose
    from repro.runs import places
    from repro.timing import bench_step

    refuse(overrides, ("steps", "epochs"), "each measurement has --steps steps", ", and type --steps N")
    places.check_folder(out)
    bench_step.measure_steps(compose.typed(overrides or []), steps, repeats, out)
    typer.echo(f"written: {out / 'step.jsonl'}")


def regret(
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="Where the summary goes.")] = Path("results/summaries/regret.json"),
) -> None:
    """Measure in the lab what `repro tune` chooses, the two after it and all without buckets; regret is the
    choice over the best of them.

    \b
    repro bench regret                                         2 models on links of 0.1 to 10 Gbps: 5 to 15 minutes
    repro bench regret model=resnet20 nodes=2 network.bits_per_s=1e9 --out /tmp/regret.json
    repro bench regret algo=dense,topk,gtopk,oktopk network.bits_per_s=3e8,1e9
    """
    from repro.config import compose
    from repro.runs import places
    from repro.timing import planner_check

    refuse(overrides, ("bucket_mb", *tune.CHOSEN), f"{tune.WHY_CHOSEN}; each is ranked whole too")
    places.check_file(out)
    defaults = {
        "cluster": "lab",
        "model": "resnet20,vgg16",
        "nodes": "4",
        "network.bits_per_s": "1e8,3e8,1e9,1e10",
        "algo": "dense,fp16,bytegrad,topk,gtopk_butterfly",
        "batch_per_node": "8",
        "data": "synthetic",
        "threads": "1",
        "density_warmup": "[]",
    }
    planner_check.measure(compose.typed(overrides or [], defaults), out, typer.echo)
