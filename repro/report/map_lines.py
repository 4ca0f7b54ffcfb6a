"""Says in words which algorithm is the fastest where on a map, and names its networks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from repro import screen

AMONG = {  # by how far algorithms may relax
    "compressed": "all nodes apply the same update",
    "all": "weights may differ",
}


def lines(summary: dict[str, Any]) -> list[str]:
    """Returns for each map of a summary a line for each stretch of latencies that have the same fastest algorithms."""
    names, said = summary["contenders"], []
    for one in summary["maps"]:
        where = f"{one['model']}, {screen.plural(one['nodes'], 'node')}, {AMONG[one['relax']]}"
        by_latency = zip(summary["alpha_s"], one["fastest"], strict=True)
        for row, alike in itertools.groupby(by_latency, key=lambda pair: pair[1]):
            alphas = [latency(alpha) for alpha, _ in alike]
            span = alphas[0] if len(alphas) == 1 else f"{alphas[0]} to {alphas[-1]}"
            said.append(f"{where}, {span} a message: {_along([names[place] for place in row], summary['bits_per_s'])}")
    return said


def _along(fastest: Sequence[str], bits_per_s: Sequence[float]) -> str:
    """Names who is the fastest from the slowest link on, each with the fastest link up to which it is."""
    parts = []
    for name, links in itertools.groupby(zip(fastest, bits_per_s, strict=True), key=lambda pair: pair[0]):
        *_, (_, last) = links
        parts.append(f"{name} to {bandwidth(last)}")
    return ", ".join(parts)


def bandwidth(bits_per_s: float) -> str:
    return f"{bits_per_s / 1e9:g} Gbps" if bits_per_s >= 1e9 else f"{bits_per_s / 1e6:g} Mbps"


def latency(alpha_s: float) -> str:
    return "0" if alpha_s == 0 else f"{1e3 * alpha_s:g} ms" if alpha_s >= 1e-3 else f"{1e6 * alpha_s:g} µs"
