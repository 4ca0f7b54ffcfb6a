"""Draws what relaxing S-SGD gains over the best exact way at 1 to 100 Gbps, in the dilated lab (BAGUA's trade-off)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from repro.figures import _draw, _legend, _names, _times
from repro.iteration_time import FIELDS, IterationTime
from repro.report.group import Group
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "What relaxing S-SGD gains over bandwidth, measured with time dilated"
COMMAND = "repro run experiment=tradeoff_dilated"
WIDTH = "double"
EXACT = ("ddp", "dense")  # the best of them is what the others are held against
OTHERS = ("byteps", "ddp", "horovod")  # of BAGUA's study, likewise
VGG, CLAIM = "vgg16_imagenet", "claim"  # BAGUA's network; its abstract's "up to", over all its tasks
COLOURS = {  # Okabe and Ito's, with a marker
    "gtopk": ("#009E73", "^"),
    "bytegrad": ("#D55E00", "s"),
    "onebit": ("#E69F00", "v"),
    "powersgd": ("#56B4E9", "P"),
    "local_sgd": ("#CC79A7", "D"),
}
THEIRS = {"qadam": "*", "async_average": "<"}  # markers of what only BAGUA has here
HOLLOW: dict[str, Any] = {"linewidth": 0.6, "linestyle": (0, (1, 2)), "markerfacecolor": "white", "markersize": 3.5}
LEFT = 0.87  # times the bandwidth, where published marks stand: ours would hide them
UNKNOWN = ("#000000", "X")  # of an algorithm that is added later


def table(results: Results) -> list[Row]:
    """Returns one row for each iteration, and the published factors; none where nothing was measured.

    `gain` is over the best exact iteration on that network, with compress left out, as if it took no time;
    `gain_with_compress` has what it takes on one core here. `late` is the share of messages that this machine
    delivered later than it makes up for.
    """
    rows = [_row(group, row) for group in results.groups("tradeoff_dilated") for row in _times.in_lab(group)]
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        if row["algo"] in EXACT:
            best[_place(row)] = min(row["without_compress_s"], best.get(_place(row), row["without_compress_s"]))
    for row in rows:
        exact_s = best.get(_place(row))
        row["gain"] = exact_s / row["without_compress_s"] if exact_s else None
        row["gain_with_compress"] = exact_s / row["iteration_s"] if exact_s else None
    order = _draw.models_of(rows)
    rows.sort(key=lambda row: (order.index(row["model"]), row["gbps"], row["iteration_s"]))
    return rows + (published(results, rows[0]) if rows else [])


def _place(row: Row) -> tuple[Any, ...]:
    return row["model"], row["gbps"], row["nodes"], row["batch_per_node"]


def _row(group: Group, row: Row) -> Row:
    time = IterationTime.of(row)
    modelled = [IterationTime.of(one).total for one in group.iteration_time if one["source"] == "modelled"]
    return {
        "model": group.model,
        "nodes": group.nodes,
        "batch_per_node": group.batch,
        "density": group.settings["density"],
        "gbps": group.settings["network"]["bits_per_s"] / 1e9,
        "algo": group.algo,
        "overlap": "on" if group.algo == "ddp" else group.settings["overlap"],
        **{name: time.row()[name] for name in FIELDS},
        "iteration_s": time.total,
        "without_compress_s": time.total - time.compress_s,
        "modelled_s": modelled[0] if modelled else None,
        "gain": None,
        "gain_with_compress": None,
        "late": row.get("late"),
        "dilation": row.get("dilation"),
        "repeats": row.get("repeats"),
        "source": row["source"],
    }


def published(results: Results, like: Row) -> list[Row]:
    """Returns BAGUA's factors over the best of the others, with the columns of `like`."""
    bagua, found = results.paper["bagua"], []
    for gbps, rates in bagua["vgg16_images_per_s"].items():
        if gbps == "evidence":
            continue
        best = max(rates[name] for name in OTHERS)
        found += [(VGG, gbps, algo, rate / best) for algo, rate in rates.items() if algo not in OTHERS]
    claims = {gbps: factor for gbps, factor in bagua["over_best_of_others"].items() if gbps != "evidence"}
    found += [("", gbps, CLAIM, factor) for gbps, factor in claims.items()]
    return [
        dict.fromkeys(like) | {"model": model, "gbps": gbps, "algo": algo, "gain": gain, "source": "published"}
        for model, gbps, algo, gain in found
    ]


def draw(rows: list[Row]) -> Figure:
    """Draws one panel a network: filled marks are whole iterations, hollow ones lack compress; grey is published."""
    ours = [row for row in rows if row["source"] != "published"]
    theirs = [row for row in rows if row["source"] == "published"]
    models = _draw.models_of(ours)
    figure, axes, columns = _draw.grid(len(models), columns=1, height=2.3, sharey=True)
    for panel, model in zip(axes, models, strict=True):
        one_panel(panel, [row for row in ours if row["model"] == model], [r for r in theirs if r["model"] == model])
        claims = [row for row in theirs if row["algo"] == CLAIM]
        xs, ys = ([times * row[name] for row in claims] for name, times in (("gbps", LEFT), ("gain", 1)))
        panel.plot(
            xs, ys, color=_draw.PUBLISHED, marker="_", markersize=11, linestyle="", label="published, up to (abstract)"
        )
        panel.set_title(_draw.model_name(model))
        panel.set_xscale("log")
        panel.set_xticks(sorted({row["gbps"] for row in ours}))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.xaxis.minorticks_off()
        panel.set_xlabel("bandwidth (Gbps)")
    for panel in axes:
        _draw.plain_log(panel)
    for panel in axes[::columns]:
        panel.set_ylabel("times as fast as the best of DDP\nand dense overlapped")
    _legend.of_panels(figure, axes)
    _legend.note(figure, *_notes(ours))
    return figure


def one_panel(panel: Axes, ours: list[Row], theirs: list[Row]) -> None:
    panel.axhline(1, color="0.7", linewidth=0.8, zorder=1)
    relaxed = [row for row in ours if row["algo"] not in EXACT and row["gain"] is not None]
    for name, mine in _names.lines(relaxed, "nodes", "batch_per_node", "density").items():
        colour, marker = COLOURS.get(mine[0]["algo"], UNKNOWN)
        xs = [row["gbps"] for row in mine]
        style: dict[str, Any] = {"color": colour, "marker": marker, "linewidth": 1.0, "markersize": 4}
        panel.plot(xs, [row["gain_with_compress"] for row in mine], label=name, **style)
        panel.plot(xs, [row["gain"] for row in mine], zorder=1.8, **style | HOLLOW)
    if relaxed:
        panel.plot([], [], color=_draw.INK, marker="o", label="without compress", **HOLLOW)
    for algo in dict.fromkeys(row["algo"] for row in theirs):
        same = sorted((row for row in theirs if row["algo"] == algo), key=lambda row: row["gbps"])
        marker = THEIRS.get(algo) or COLOURS.get(algo, UNKNOWN)[1]
        style = {"color": _draw.PUBLISHED, "marker": marker, "markersize": 4, "linestyle": "", "zorder": 2.5}
        label = f"published, {_draw.algo_name(algo)}"
        panel.plot([LEFT * row["gbps"] for row in same], [row["gain"] for row in same], label=label, **style)


def _notes(ours: list[Row]) -> list[str]:
    sizes = " and ".join(map(str, sorted({row["nodes"] for row in ours})))
    return [
        f"P = {sizes} nodes with a V100's compute in float32, slept (the seconds and their sources stand in "
        "conf/experiment/tradeoff_dilated.yaml); our messages on real TCP, "
        f"{_times.slowed(ours)} ({COMMAND}). Filled: with what compress takes on one core of this CPU; hollow, dotted: "
        "without, as if it took no time. A GPU lies between. The messages of these algorithms do not overlap backward "
        "here, as BAGUA's do; local SGD averages weights every 8 steps." + _noise(ours),
        "Dense overlapped: buckets of 25 MB. DDP: its buckets by gloo, on the same links, but without their latency."
        + _alone(ours),
        "Published (grey): BAGUA (arXiv:2107.01499) over the best of DDP, Horovod and BytePS, VGG-16 on 16 servers of "
        "8 V100 and one link each, read off the charts of its benchmark page; bars: the factors of its abstract, "
        "up to, over all its tasks. They stand a little left of their bandwidth.",
    ]


def _noise(ours: list[Row]) -> str:
    """Says how far the seconds of one compress lie apart, which each bandwidth has timed anew."""
    seconds: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for row in ours:
        if row["compress_s"]:
            seconds[row["model"], row["algo"], row["nodes"]].append(row["compress_s"])
    if not any(len(own) > 1 for own in seconds.values()):
        return ""
    (model, algo, _), own = max(seconds.items(), key=lambda one: max(one[1]) / min(one[1]))
    return (
        " Compress was timed anew at each bandwidth, and filled marks move by that too: "
        f"most {_draw.algo_name(algo)} of {_draw.model_name(model)}, {min(own):.2g} to {max(own):.2g} s."
    )


def _alone(ours: list[Row]) -> str:
    """Says where not all of EXACT were measured, so that the gains there are over the others."""
    there: dict[tuple[str, float], set[str]] = defaultdict(set)
    for row in ours:
        there[row["model"], row["gbps"]].add(row["algo"])
    some = [place for place, algos in sorted(there.items()) if not algos >= set(EXACT)]
    places = ", ".join(f"{_draw.model_name(model)} at {gbps:g} Gbps" for model, gbps in some)
    return f" Not both of these were measured of {places}." if places else ""
