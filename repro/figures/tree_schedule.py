"""Draws who sends to whom in which round: gTop-k's tree and the butterfly, from the traffic of a recorded step."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from repro.figures import _draw, _legend
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Rounds of the gTop-k tree and of the butterfly"
COMMAND = "repro run experiment=tree_schedule"


def table(results: Results) -> list[Row]:
    """Returns one row per message."""
    rows = []
    for group in results.groups("tree_schedule"):
        for record in group.recorded[:1]:
            for message in messages(record["schedule"]):
                rows.append(
                    {
                        "source": "recorded",
                        "algo": group.algo,
                        "nodes": group.nodes,
                        "k": record["k"],
                        **message,
                    }
                )
    return rows


def messages(all_rounds: Sequence[Sequence[Sequence[Any]]]) -> list[Row]:
    """Returns every message with its round; each round starts as soon as both its ends are there.

    `all_rounds[rank]` holds what the rank recorded: (to, sent, source, received, repeat). The n-th message from i to j
    is the n-th that j receives from i.
    """
    at, clock = [0] * len(all_rounds), [0] * len(all_rounds)
    rows: list[Row] = []
    while any(at[rank] < len(own) for rank, own in enumerate(all_rounds)):
        ready = [rank for rank in range(len(all_rounds)) if _ready(all_rounds, at, rank)]
        if not ready:
            raise ValueError("the recorded rounds do not fit together")
        ends = {rank: 1 + max(clock[other] for other in _partners(all_rounds, at, rank)) for rank in ready}
        for rank in ready:
            to, sent, *_ = all_rounds[rank][at[rank]]
            if to is not None:
                rows.append({"round": ends[rank], "from": rank, "to": to, "bytes": sent})
        for rank, end in ends.items():
            at[rank] += 1
            clock[rank] = end
    return sorted(rows, key=lambda row: (row["round"], row["from"], row["to"]))


def _partners(all_rounds: Sequence[Any], at: list[int], rank: int) -> set[int]:
    to, _, source, *_ = all_rounds[rank][at[rank]]
    return {rank} | {other for other in (to, source) if other is not None}


def _ready(all_rounds: Sequence[Any], at: list[int], rank: int) -> bool:
    """Returns whether this rank and all its partners have come to rounds that name each other."""
    if at[rank] >= len(all_rounds[rank]):
        return False
    to, _, source, *_ = all_rounds[rank][at[rank]]
    receives = to is None or (at[to] < len(all_rounds[to]) and all_rounds[to][at[to]][2] == rank)
    sends = source is None or (at[source] < len(all_rounds[source]) and all_rounds[source][at[source]][0] == rank)
    return receives and sends


def draw(rows: list[Row]) -> Figure:
    parts: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in rows:
        parts[row["nodes"], row["algo"]].append(row)
    sizes, algos = sorted({nodes for nodes, _ in parts}, reverse=True), _draw.algos_of(rows)
    figure, axes, _ = _draw.grid(len(sizes) * len(algos), len(algos), height=1.75)
    for place, nodes in enumerate(sizes):
        for column, algo in enumerate(algos):
            panel(axes[place * len(algos) + column], parts[nodes, algo], nodes, algo)
    pairs = {row["k"]: row["bytes"] for row in rows}
    sizes_text = ", ".join(f"{size:,} bytes (k = {k} pairs)" for k, size in sorted(pairs.items()))
    _legend.note(figure, f"Recorded traffic of one training step. Every arrow is one message of {sizes_text}.")
    return figure


def panel(axes: Axes, rows: list[Row], nodes: int, algo: str) -> None:
    """Draws the messages of one algorithm on one number of nodes."""
    style = _draw.look(algo)
    rounds = max((row["round"] for row in rows), default=0)
    axes.hlines(range(nodes), 0, rounds, color="0.85", linewidth=0.8, zorder=1)
    for row in rows:
        axes.annotate(
            "",
            (row["round"], row["to"]),
            (row["round"] - 1, row["from"]),
            arrowprops={
                "arrowstyle": "-|>,head_length=0.35,head_width=0.15",
                "color": style.colour,
                "linewidth": 0.8,
                "shrinkA": 1,
                "shrinkB": 1,
            },
        )
    axes.set(xlim=(-0.15, rounds + 0.15), ylim=(nodes - 0.6, -0.4), xticks=range(rounds + 1), yticks=range(nodes))
    axes.set_title(f"{_draw.algo_name(algo)}, P = {nodes}: {rounds} rounds", fontsize=7)
    axes.set_xlabel("round")
    axes.set_ylabel("rank")
    axes.grid(False)
