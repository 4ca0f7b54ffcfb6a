"""Defines `repro map`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro.commands.overrides import ELSEWHERE, UNREAD, Overrides, refuse, refuse_text


def register(app: typer.Typer) -> None:
    app.command("map", short_help="Predict the fastest algorithm on each network.")(map_)


def map_(
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="Where the predictions are written.")] = Path(
        "results/summaries/tradeoff.json"
    ),
    show: Annotated[bool, typer.Option("--show", help="Print the composed settings and stop.")] = False,
) -> None:
    """Predict the fastest algorithm over bandwidth and latency; nothing is trained.

    \b
    repro map experiment=tradeoff                         2 to 128 nodes: about 20 minutes on one core
    repro map model=resnet20 nodes=8,32                   a part of it
    repro plot figures --only tradeoff                    draw what was predicted

    Its grid of networks is tradeoff.bits_per_s and tradeoff.alpha_s, of experiment=tradeoff unless another is named.
    What is predicted already stays: type the same command to go on. With other settings, as tradeoff.node=measured for
    compute that is timed here, name another file with --out; it is told in words, as the figure is of the first.
    """
    from repro.config import compose

    grid = ", and type tradeoff.bits_per_s=[1e9,1e10] and tradeoff.alpha_s=[1e-5], or leave these out too"
    refuse(overrides, ("network", "network.", "also_on"), "repro map predicts on a grid of networks", grid)
    refuse(overrides, ("node",), "the seconds of a node are tradeoff.node= here", ", and type tradeoff.node=measured")
    refuse(overrides, UNREAD, "nothing is trained here, and what is predicted does not depend on it", ELSEWHERE)
    refuse_text(overrides, "map")
    configs = compose.typed(overrides or [], {"experiment": "tradeoff"})
    if show:
        from repro.config.show import text

        typer.echo("---\n".join(map(text, configs)), nl=False)
        return
    from repro.timing import fastest_map

    fastest_map.run(configs, print, out)  # not typer.echo, which writes into the bar
