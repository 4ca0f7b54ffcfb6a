"""Draws a few entries on their way through the tree: which nodes selected them, and which merge dropped them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from repro.figures import _draw, _legend
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "What the nodes select, and what merging drops"
COMMAND = "repro run experiment=selection_example"
MOST = {False: 13, True: 24}  # entries that have room for their numbers: over one column of a page, and over two
SELECTED, SHARED, DROPPED = "#8FD3BC", "#009E73", "0.93"  # a cell's colour
Entries = Mapping[int, float]


def table(results: Results) -> list[Row]:
    """Returns one row per entry of each node's selection, and of what each merge of the tree has before it."""
    rows: list[Row] = []
    for group in results.groups("selection_example")[:1]:
        for record in (record for record in group.recorded[-1:] if record.get("result")):
            same = {
                "source": "recorded",
                "model": group.model,
                "data": group.data,
                "algo": group.algo,
                "step": record["step"],
                "parameters": record["parameters"],
                "k": record["k"],
            }
            selections = [dict(zip(one["index"], one["value"], strict=True)) for one in record["selections"]]
            for merged, ranks, entries, kept in stages(selections, set(record["result"]["index"]), record["k"]):
                rows += [
                    same | {"merge": merged, "ranks": ranks, "index": index, "value": value, "kept": index in kept}
                    for index, value in sorted(entries.items())
                ]
    return rows


def stages(selections: Sequence[Entries], result: set[int], k: int) -> Iterator[tuple[bool, str, Entries, set[int]]]:
    """Yields the selection of each node and the candidates of each merge of the binomial tree, each with what it keeps.

    The last merge keeps what the recorded `result` has.
    """
    held = {rank: dict(entries) for rank, entries in enumerate(selections)}
    ranks = {rank: [rank] for rank in held}
    for rank, entries in held.items():
        yield False, str(rank), entries, set(entries)
    distance = 1
    while len(held) > 1:
        for rank in sorted(held):
            if rank % (2 * distance) == 0 and rank + distance in held:
                other = held.pop(rank + distance)
                entries = {i: held[rank].get(i, 0.0) + other.get(i, 0.0) for i in held[rank].keys() | other.keys()}
                ranks[rank] += ranks.pop(rank + distance)
                largest = sorted(entries, key=lambda i: (-abs(entries[i]), i))[:k]
                kept = result if len(held) == 1 else set(largest)
                held[rank] = {i: value for i, value in entries.items() if i in kept}
                yield True, " ".join(map(str, ranks[rank])), entries, kept
        distance *= 2


def draw(rows: list[Row]) -> Figure:
    """Draws a row of cells for each node and merge, a column for each of some entries; a cell holds the value."""
    by_stage: dict[tuple[bool, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_stage[row["merge"], row["ranks"]].append(row)
    columns = chosen(by_stage, MOST[_draw.wide()])
    figure, (panel,) = _draw.panels(1, height=0.21 * len(by_stage) + 0.55)
    for place, own in enumerate(by_stage.values()):
        for row in own:
            if row["index"] in columns:
                _cell(panel, columns.index(row["index"]), place, row, shared(row, rows))
        panel.text(len(columns) - 0.35, place, _counts(own), va="center", fontsize=6.5)
    panel.axhline(sum(not merge for merge, _ in by_stage) - 0.5, color=_draw.INK, linewidth=0.6)
    panel.set(xlim=(-0.6, len(columns) - 0.4), ylim=(len(by_stage) - 0.5, -0.5))
    panel.set_yticks(range(len(by_stage)), [_stage(*stage) for stage in by_stage])
    panel.set_xticks(range(len(columns)), [f"{index:,}" for index in columns], rotation=90, fontsize=6)
    panel.set_xlabel("position in the flat gradient (some of them)")
    panel.tick_params(length=0)
    panel.grid(False)
    colours = {"selected, and kept": SELECTED, "the sum of two or more": SHARED, "dropped here": DROPPED}
    _legend.draw(figure, {name: Patch(facecolor=colour) for name, colour in colours.items()})
    _legend.note(figure, *_notes(rows, by_stage))
    return figure


def chosen(by_stage: Mapping[tuple[bool, str], Sequence[Row]], most: int) -> list[int]:
    """Returns up to `most` positions to show, of each history the first; those of several nodes stand last.

    A history is who selected the entry, and which merges kept it.
    """
    history: dict[int, list[tuple[str, bool]]] = defaultdict(list)
    owners: dict[int, int] = defaultdict(int)
    for (merge, ranks), own in by_stage.items():
        for row in own:
            history[row["index"]].append((ranks, row["kept"]))
            owners[row["index"]] += not merge
    first: dict[tuple[tuple[str, bool], ...], int] = {}
    for index in sorted(history):
        first.setdefault(tuple(history[index]), index)

    def fate(index: int) -> tuple[bool, int]:
        """Sorts what is kept to the end before what is dropped, and what is dropped early before the rest."""
        return not history[index][-1][1], len(history[index])

    alone = sorted((index for index in first.values() if owners[index] == 1), key=lambda index: (fate(index), index))
    several = {fate(index): index for index in sorted(first.values(), reverse=True) if owners[index] > 1}
    shown = [several[one] for one in sorted(several)][: most // 3]
    return sorted(alone[: most - len(shown)], key=lambda index: (history[index][0], fate(index))) + shown


def shared(row: Row, rows: Sequence[Row]) -> bool:
    """Returns whether several nodes have added to this cell's value."""
    nodes = row["ranks"].split()
    return sum(not one["merge"] and one["index"] == row["index"] and one["ranks"] in nodes for one in rows) > 1


def _cell(panel: Axes, x: int, y: int, row: Row, of_several: bool) -> None:
    colour = DROPPED if not row["kept"] else SHARED if of_several else SELECTED
    panel.add_patch(Rectangle((x - 0.47, y - 0.42), 0.94, 0.84, facecolor=colour, linewidth=0))
    text = f"{row['value']:.2f}".replace("0.", ".").replace("-", "\u2212")
    ink = {SELECTED: "0.1", SHARED: "white", DROPPED: "0.45"}[colour]
    panel.text(x, y, text, ha="center", va="center", fontsize=5.5, color=ink)


def _stage(merge: bool, ranks: str) -> str:
    return f"merge {ranks.replace(' ', '+')}" if merge else f"rank {ranks}"


def _counts(rows: Sequence[Row]) -> str:
    kept = sum(row["kept"] for row in rows)
    return f"{len(rows)} → {kept}" if rows[0]["merge"] else f"{kept}"


def _notes(rows: Sequence[Row], by_stage: Mapping[tuple[bool, str], Sequence[Row]]) -> list[str]:
    first, last = rows[0], list(by_stage.values())[-1]
    sums: dict[int, float] = defaultdict(float)
    nodes: dict[int, int] = defaultdict(int)
    for row in rows:
        if not row["merge"]:
            sums[row["index"]] += row["value"]
            nodes[row["index"]] += 1
    k, several = first["k"], sum(count > 1 for count in nodes.values())
    largest = set(sorted(sums, key=lambda index: (-abs(sums[index]), index))[:k])
    alike = sum(row["kept"] and row["index"] in largest for row in last)
    ranks = sum(not merge for merge, _ in by_stage)
    return [
        f"Each node selects the k = {k} largest of its gradient + residual. A merge adds what two nodes hold, keeps "
        "the k largest and drops the rest. Nodes put back into their residuals what is not in the result. Right: "
        "entries before and after.",
        f"Of {len(sums):,} positions that were selected, {several} were selected by several nodes. {alike} of the {k} "
        f"that the tree keeps are among the {k} largest of the sum of all selections; it misses the other {k - alike} "
        "of these, because an early merge sees only a part of the nodes.",
        f"Step {first['step']} of {_draw.model_name(first['model'])} on {_draw.data_name(first['data'])}, P = {ranks}, "
        f"m = {first['parameters']:,}, as recorded; the merges follow from the recorded selections.",
    ]
