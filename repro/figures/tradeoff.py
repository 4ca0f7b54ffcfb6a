"""Maps of the fastest algorithm over bandwidth and latency (not in the paper; the axes are those of BAGUA's study)."""

import textwrap
from collections.abc import Iterable

from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from repro.figures import _draw, _maps
from repro.results import Results
from repro.tables import Row

TITLE = "The fastest algorithm over bandwidth and latency"
COMMAND = _maps.COMMAND
WIDTH = 7.16  # inches, two columns
WON = 1.05  # times as fast as the best exact algorithm: below, relaxing buys nothing worth it
# Okabe and Ito's that `_draw.LOOKS` leaves, then Tol's; names stand in the regions all the same.
COLOURS = ("#56B4E9", "#F0E442", "#BBBBBB", "#332288", "#999933", "#882255", "#DDCC77", "#44AA99", "#EE99AA")
SMALL = 3  # cells that have no room for a name
LETTER = 0.38  # cells, of a name's width

Cell = tuple[int, int]


def table(results: Results) -> list[Row]:
    return _maps.cells(results)


def draw(rows: list[Row]) -> Figure:
    models = list(dict.fromkeys(row["model"] for row in rows))
    relaxes = list(dict.fromkeys(row["relax"] for row in rows))
    figure, panels = _draw.panels(len(relaxes), len(models), height=1.9, width=WIDTH)
    colours = colours_of(row["fastest"] for row in rows)
    for number, panel in enumerate(panels):
        relax, model = relaxes[number // len(models)], models[number % len(models)]
        one_map(panel, [row for row in rows if (row["model"], row["relax"]) == (model, relax)], colours)
        if number < len(models):
            panel.set_title(_draw.model_name(model))
        if number >= len(panels) - len(models):
            panel.set_xlabel("bandwidth (Gbps)")
        if number % len(models) == 0:
            panel.set_ylabel(f"latency\n({_maps.AMONG.get(relax, relax)})")
        else:
            panel.set_yticklabels([])
    _draw.note(
        figure,
        f"P = {rows[0]['nodes']}, density 0.001. Predicted: the algorithms' own messages on the cost model; compute is "
        "the article's (a P100 of 2019) and compress is timed here (one core of a CPU), a mixture: "
        "tradeoff.node=measured has both from one machine. "
        f"Pale: less than {WON - 1:.0%} faster than the best exact algorithm (dense, DDP, overlapped or not). "
        "Upper row: exact and compressed gradients; lower row: also averages of weights (local SGD every 8 steps, "
        "decentralised, asynchronous). Fastest per iteration is not fastest to an accuracy: what an exchange leaves "
        "out may have to be made up for in steps, and random-k selects without looking (see Convergence).",
        "Shape only: BAGUA (arXiv:2107.01499) also reports that compression pays as bandwidth falls and fewer partners "
        "or waits as latency grows, of BERT-Large on 128 GPUs.",
    )
    return figure


def colours_of(winners: Iterable[str]) -> dict[str, str]:
    names = list(dict.fromkeys(winners))
    found = {name: _draw.LOOKS[name].colour for name in names if name in _draw.LOOKS}
    others = sorted(set(names) - set(found))
    return found | {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(others)}


def one_map(panel: Axes, rows: list[Row], colours: dict[str, str]) -> None:
    xs, ys = (sorted({row[name] for row in rows}) for name in ("bits_per_s", "alpha_s"))
    at = {(xs.index(row["bits_per_s"]), ys.index(row["alpha_s"])): row for row in rows}
    image = [[shade(at[x, y], colours) for x in range(len(xs))] for y in range(len(ys))]
    panel.imshow(image, origin="lower", aspect="auto", interpolation="nearest")
    decades = [x for x, bits in enumerate(xs) if f"{bits:e}".startswith("1.0000")]
    panel.set_xticks(decades, [f"{xs[x] / 1e9:g}" for x in decades])
    panel.set_yticks(range(len(ys)), [_maps.latency(alpha) for alpha in ys])
    panel.tick_params(length=2)
    panel.grid(False)
    for name, region in regions({cell: row["fastest"] for cell, row in at.items()}):
        if len(region) > SMALL:
            middle = [sum(part) / len(region) for part in zip(*region, strict=True)]
            x, y = min(region, key=lambda cell: (cell[0] - middle[0]) ** 2 + 2 * (cell[1] - middle[1]) ** 2)
            lines = textwrap.wrap(_draw.look(name).label.replace(" MB", "\u00a0MB"), 10)
            half = LETTER * max(map(len, lines)) / 2
            inside = min(max(x, half - 0.5), len(xs) - 0.5 - half)  # of the panel
            halo = [patheffects.withStroke(linewidth=1.2, foreground="white")]
            panel.text(
                inside, y, "\n".join(lines), ha="center", va="center", fontsize=5, linespacing=0.95, path_effects=halo
            )


def shade(row: Row, colours: dict[str, str]) -> list[float]:
    weight = 1.0 if row["over_exact"] >= WON else 0.35
    return [1 - weight * (1 - part) for part in to_rgb(colours[row["fastest"]])]


def regions(names: dict[Cell, str]) -> list[tuple[str, list[Cell]]]:
    """Neighbouring cells with the same name."""
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
