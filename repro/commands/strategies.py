"""Defines `repro strategies`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from repro.commands.overrides import ELSEWHERE, UNREAD, Overrides, refuse, refuse_text

CHOSEN = (  # "algo." is every algo.KEY
    "network", "network.", "also_on", "stages", "cuts", "bucket_mb", "overlap", "scope", "node", "threads", "algo.",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    app.command(short_help="Predict which split suits which network.")(strategies)


def strategies(
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option(help="Where the predictions are written.")] = Path(
        "results/summaries/split_predictions.json"
    ),
) -> None:
    """Predict which split suits which network and wire: the images, the network as a pipeline, or both.

    \b
    repro strategies                                      four networks on 4 to 32 nodes, 1 to 100 Gbps: minutes
    repro strategies model=resnet20 nodes=4               a part of it; the other predictions stay
    repro run experiment=strategies                       the same on 4 and 8 nodes, measured in the dilated lab
    repro plot figures --only strategies                  both in one figure

    Compute and compress are published; how compute divides among a network's blocks is timed here.
    """
    from repro.config import compose

    why = "repro strategies predicts every split, on its own networks, with published seconds and plain algorithms"
    refuse(overrides, CHOSEN, why, "; model, nodes, data, batch_per_node, accumulate, density and precision are read")
    refuse(overrides, UNREAD, "nothing is trained here, and what is predicted does not depend on it", ELSEWHERE)
    refuse_text(overrides, "strategies")
    configs = compose.typed(overrides or [], {"experiment": "strategies", "nodes": "4,8,16,32", "stages": "1"})
    from repro.timing import strategies as predicted

    predicted.run(configs, print, out)
