"""Lists the bandwidths at which another algorithm becomes the fastest (not in the paper)."""

import itertools
import math

from repro.figures import _draw, _maps
from repro.iteration_time import TIE
from repro.report import map_lines
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Where the ranking flips as bandwidth grows"
COMMAND = _maps.COMMAND
NODES = 4, _maps.NODES  # those on which sparse algorithms were trained
LATENCIES = (30e-6, 1e-3)  # seconds: a good Ethernet, and a wide-area or crowded one


def table(results: Results) -> list[Row]:
    """Returns for each model, P, latency and set of algorithms the fastest in each range of bandwidths, and gains.

    One that is nowhere in its range more than TIE ahead of the last that was no such one counts as equal to it (=), and
    as no flip: a prediction is not as good as that.
    """
    rows = [row for nodes in NODES for row in _maps.cells(results, nodes) if row["alpha_s"] in LATENCIES]
    groups = itertools.groupby(rows, key=lambda row: (row["model"], row["nodes"], row["relax"], row["alpha_s"]))
    return [_row(*key, list(own)) for key, own in groups]


def _row(model: str, nodes: int, relax: str, alpha_s: float, cells: list[Row]) -> Row:
    stretches = [list(own) for _, own in itertools.groupby(cells, key=lambda cell: cell["fastest"])]
    flips = [max(cell["over_before"] or math.inf for cell in own) > TIE for own in stretches]
    names = [
        _draw.algo_name(own[0]["fastest"])
        + (f" from {map_lines.bandwidth(own[0]['bits_per_s'])}{'' if flip else ' (=)'}" if place else "")
        for place, (own, flip) in enumerate(zip(stretches, flips, strict=True))
    ]
    return {
        "model": _draw.model_name(model),
        "nodes": nodes,
        "among": "exact and compressed gradients" if relax == "compressed" else "averaged weights too",
        "latency": map_lines.latency(alpha_s),
        f"fastest at {map_lines.bandwidth(cells[0]['bits_per_s'])} and above": "; ".join(names),
        "flips": sum(flips[1:]),
        "over dense there": cells[0]["over_dense"],
        f"over dense at {map_lines.bandwidth(cells[-1]['bits_per_s'])}": cells[-1]["over_dense"],
        "source": "simulated",
    }
