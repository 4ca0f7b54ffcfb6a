"""Maps the fastest algorithm over bandwidth and latency (not in the paper; the axes are those of BAGUA's study)."""

import math
import textwrap
from collections.abc import Iterable
from itertools import product

from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from repro.config.schema import ConfigError
from repro.figures import _draw, _legend, _maps
from repro.report import map_lines
from repro.report.summaries import Results
from repro.report.verdicts import MARGIN
from repro.tables import Row

TITLE = "The fastest algorithm over bandwidth and latency"
COMMAND = _maps.COMMAND
WIDTH = "double"
WON = 1.05  # times as fast as the best exact algorithm: below, relaxing buys nothing worth it
# Okabe and Ito's that `_draw.LOOKS` leaves, then Tol's; names stand in the regions all the same.
COLOURS = (
    "#56B4E9", "#F0E442", "#BBBBBB", "#332288", "#999933", "#882255", "#DDCC77", "#44AA99", "#EE99AA", "#AA4499",
    "#117733", "#661100",
)  # fmt: skip
SIZE = 6  # points, of a name in its region
LETTER = 0.55 * SIZE / 72  # inches, a letter's width

SECONDS = {  # by what tradeoff.node was
    "paper": "compute is the published (a P102-100's) and compress is timed here (one core of a CPU), a mixture: "
    "tradeoff.node=measured has both from one machine",
    "measured": "compute and compress are timed on one machine (one core of a CPU)",
}

Cell = tuple[int, int]


def table(results: Results) -> list[Row]:
    return _maps.cells(results, _maps.NODES)


def draw(rows: list[Row]) -> Figure:
    models = list(dict.fromkeys(row["model"] for row in rows))
    relaxes = list(dict.fromkeys(row["relax"] for row in rows))
    figure, panels = _draw.blocks(len(relaxes), len(models), 1.9)
    colours = colours_of(row["fastest"] for row in rows)
    for (place, relax), (column, model) in product(enumerate(relaxes), enumerate(models)):
        panel = panels[place][column]
        one_map(panel, [row for row in rows if (row["model"], row["relax"]) == (model, relax)], colours)
        if place == 0:
            panel.set_title(_draw.model_name(model))
        if place == len(relaxes) - 1:
            panel.set_xlabel("bandwidth (Gbps)")
        if _draw.at(panel).is_first_col():
            panel.set_ylabel(f"latency\n({map_lines.AMONG.get(relax, relax)})")
        else:
            panel.set_yticklabels([])
    names = sorted(colours, key=lambda name: (-sum(row["fastest"] == name for row in rows), name))
    shades = {name: sorted({shade(row, colours) for row in rows if row["fastest"] == name}) for name in names}
    _legend.draw(figure, {_draw.algo_name(name): [Patch(facecolor=one) for one in own] for name, own in shades.items()})
    density = "" if rows[0]["density"] is None else f", density {rows[0]['density']:g} where a name has no other"
    own = {row["fastest"]: row["its options"] for row in rows if row["its options"]}
    having = "".join(f"; {_draw.algo_name(name)}: {options}" for name, options in own.items())
    seconds = SECONDS.get(rows[0]["node"], f"seconds of compute and of compress are stated ({rows[0]['node']})")
    _legend.note(
        figure,
        f"P = {rows[0]['nodes']}{density}{having}. "
        f"Predicted: the algorithms' own messages on the cost model; {seconds}. "
        f"Pale: less than {WON - 1:.0%} faster than the best exact algorithm (dense, DDP, overlapped or not). "
        "Upper row: exact and compressed gradients; lower row: also averages of weights (local SGD every 8 steps, "
        "SparseLoCo every 15, decentralised, asynchronous). Fastest per iteration is not fastest to an accuracy: what "
        "an exchange leaves out may have to be made up for in steps. An algorithm is on the map only if it was trained "
        f"and ended at most {MARGIN:g} point below dense, by the mean of its seeds (of most one; ResNet-20, on "
        f"schedules that are not compressed; sparse ones on {rows[0]['nodes']} nodes, others where they were trained "
        "longest, on 4), for all networks. Points below dense are in the CSV.",
        "Shape only: BAGUA (arXiv:2107.01499) also reports that compression pays as bandwidth falls and fewer partners "
        "as latency grows, of BERT-Large on 128 GPUs.",
    )
    return figure


def colours_of(winners: Iterable[str]) -> dict[str, str]:
    names = list(dict.fromkeys(winners))
    found = {name: _draw.LOOKS[name].colour for name in names if name in _draw.LOOKS}
    others = sorted(set(names) - set(found))
    if len(others) > len(COLOURS):
        raise ConfigError(f"a map of {len(names)} winners: there are colours for {len(COLOURS) + len(found)}")
    return found | dict(zip(others, COLOURS, strict=False))


def one_map(panel: Axes, rows: list[Row], colours: dict[str, str]) -> None:
    xs, ys = (sorted({row[name] for row in rows}) for name in ("bits_per_s", "alpha_s"))
    cells = {(xs.index(row["bits_per_s"]), ys.index(row["alpha_s"])): row for row in rows}
    image = [[shade(cells[x, y], colours) for x in range(len(xs))] for y in range(len(ys))]
    panel.imshow(image, origin="lower", aspect="auto", interpolation="nearest")
    decades = [x for x, bits in enumerate(xs) if f"{bits:e}".startswith("1.0000")]
    panel.set_xticks(decades, [f"{xs[x] / 1e9:g}" for x in decades])
    panel.set_yticks(range(len(ys)), [map_lines.latency(alpha) for alpha in ys])
    panel.tick_params(length=2)
    panel.grid(False)
    inches = (_draw.width() - 0.8) / _draw.at(panel).get_gridspec().ncols  # of this panel, nearly
    for name, region in regions({cell: row["fastest"] for cell, row in cells.items()}):
        lines = textwrap.wrap(_draw.algo_name(name).replace(" MB", "\u00a0MB"), 10)
        place = room(region, LETTER * max(map(len, lines)) * len(xs) / inches, len(lines))
        if place is not None:
            halo = [patheffects.withStroke(linewidth=1.2, foreground="white")]
            panel.text(
                *place, "\n".join(lines), ha="center", va="center", fontsize=SIZE, linespacing=0.95, path_effects=halo
            )


def room(region: list[Cell], wide: float, high: int) -> tuple[float, float] | None:
    """Returns where in the region a name of `wide` x `high` cells stands best, near its middle; None where nowhere."""
    middle = [sum(part) / len(region) for part in zip(*region, strict=True)]
    places = []
    for x, y in product(sorted({x for x, _ in region}), sorted({y for _, y in region})):
        span, rows = range(x, x + math.ceil(wide)), range(y, y + high)
        if all(cell in region for cell in product(span, rows)):
            places.append((x + (len(span) - 1) / 2, y + (high - 1) / 2))
    near = lambda place: (place[0] - middle[0]) ** 2 + 2 * (place[1] - middle[1]) ** 2  # noqa: E731
    return min(places, key=near, default=None)


def shade(row: Row, colours: dict[str, str]) -> tuple[float, float, float]:
    weight = 1.0 if row["over_exact"] >= WON else 0.35
    red, green, blue = (1 - weight * (1 - part) for part in to_rgb(colours[row["fastest"]]))
    return red, green, blue


def regions(names: dict[Cell, str]) -> list[tuple[str, list[Cell]]]:
    """Returns groups of neighbouring cells with the same name."""
    left, found = set(names), []
    for start in sorted(names):
        if start not in left:
            continue
        left.remove(start)
        region = [start]
        for x, y in region:  # grows meanwhile
            for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
                if cell in left and names[cell] == names[start]:
                    left.remove(cell)
                    region.append(cell)
        found.append((names[start], region))
    return found
