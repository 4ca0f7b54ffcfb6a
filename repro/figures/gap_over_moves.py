"""Draws how far sparse S-SGD ends below dense, against how often an entry can move in the run: when it is free."""

from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from repro.config.groups import group_options
from repro.figures import _curves, _draw, _legend
from repro.report import momentum, moves, pairs, prefixes, reference_curves
from repro.report.group import Group
from repro.report.pairs import Pair
from repro.report.reference_curves import Run
from repro.report.summaries import Results
from repro.report.verdicts import MARGIN
from repro.tables import Row

TITLE = "What sparse S-SGD costs in accuracy, against how often an entry moves"
COMMAND = "repro run experiment=density_sensitivity"
ALSO = (
    _curves.CONVERGENCE,
    *(
        f"repro run experiment={name}"
        for name in ("select_from_k_times_P", "batch_sensitivity", "families", "momentum", "wire_formats", "many_nodes")
    ),
)
PALE = 0.55  # opacity of short runs: many lie on one another
DATA, IMAGES = "cifar10", 50_000
WARMUP = (0.015625, 0.004)  # densities of the reference runs' first epochs, see results/reference_curves.yaml
_FEW, _UNION, _RANDOM = "k entries an update", "up to k × P (Top-k, DGC)", "k random entries"
SHAPES = {_FEW: "^", _UNION: "s", _RANDOM: "X"}
MOMENTUM = dict(zip(momentum.RULES, ("#009E73", "#E69F00", "#D55E00", "#000000"), strict=True))
TICKS = (-10, -3, -1, 0, 1, 3, 10, 30)


def table(results: Results) -> list[Row]:
    """Returns one row per run: ours on CIFAR-10 that have a dense run of their seed, and the reference's Top-k."""
    groups = prefixes.each_once(g for _, g in results.all_groups() if g.settings["data"]["name"] == DATA)
    trained = [group for group in groups if group.settings["steps"] is None]
    dense = [group for group in trained if group.algo == "dense" and momentum.is_usual(group.settings)]
    rows, known = [], results.networks
    for same in prefixes.of_one_setting(group for group in trained if group.settings["density"] < 1):
        rows += _of_setting(same, [one for one in dense if pairs.alike(same[0], one)], known)
    return rows + list(_of_reference(results.reference, known))


def _of_setting(same: list[Group], dense: list[Group], known: dict[str, Any]) -> list[Row]:
    """Returns a row for each seed that ours and dense have kept; otherwise one, for the means of several."""
    found = [pair for one in same for other in dense if (pair := pairs.of(one, other))]
    rows = []
    for seed in sorted({seed for pair in found for seed in pair.seeds()}):
        pair = max((pair for pair in found if seed in pair.seeds()), key=lambda pair: pair.epoch)
        over = prefixes.averaged(pair.ours, pair.epoch)
        exact, own = (_of_seed(groups, seed, pair.epoch, over) for groups in (dense, same))
        if exact is not None and own is not None:
            rows.append(_row(pair, over, 1, str(seed), exact - own, known))
    several = [pair for pair in found if min(pair.ours.n, pair.reference.n) > 1]
    if rows or not several:
        return rows
    pair = max(several, key=lambda pair: pair.epoch)
    ours, theirs = pair.accuracies
    return [_row(pair, 1, pair.ours.n, " ".join(map(str, pair.ours.seeds)), theirs - ours, known)]


def _of_seed(groups: list[Group], seed: int, epoch: float, over: int) -> float | None:
    """Returns the mean of a seed's evaluations in the last `over` epochs up to there; None where some were not made."""
    pooled = prefixes.at_epoch([group for group in groups if seed in group.seeds], epoch, over)
    return next((one.accuracies[seed] for one in pooled if seed in one.accuracies), None)


def _row(pair: Pair, over: int, n: int, seeds: str, below: float, known: dict[str, Any]) -> Row:
    """`over` is of how many epochs up to that of `pair` the mean is compared."""
    group, settings = pair.ours, pair.ours.settings
    selections = moves.selections(group, pair.epoch, known)
    return {
        "model": group.model,
        "algo": group.algo,
        "nodes": group.nodes,
        "batch_per_node": group.batch,
        "lr": settings["lr"],
        "density": settings["density"],
        "momentum": momentum.rule(settings),
        "gain": settings["algo"].get("gain"),
        "data": group.data,
        "schedule": pair.schedule,
        "whole": pair.whole,
        "precision": settings["precision"],
        "source": "trained",
        "n": n,
        "steps": group.at(pair.epoch)["step"],
        "epochs_averaged": over,
        "moves": moves.moves(group.algo, selections, group.nodes),
        "sent": moves.sent(group.algo, selections, group.nodes),
        "seeds": seeds,
        "below_dense": below,
    }


def _of_reference(runs: list[Run], known: dict[str, Any]) -> Iterator[Row]:
    """Yields how far each Top-k run is below the mean of dense runs with its model, nodes, batch and rate, if any."""
    settings = ("model", "nodes", "batch_per_node", "lr")
    for run in runs:
        if reference_curves.algo(run) != "topk":
            continue
        dense_runs = [other for other in runs if reference_curves.algo(other) == "dense"]
        like = [other for other in dense_runs if all(other[name] == run[name] for name in settings)]
        epochs = min((len(one["test_accuracy"]) for one in (run, *like)), default=0)
        if like:
            dense = sum(other["test_accuracy"][epochs - 1] for other in like) / len(like)
            steps = epochs * IMAGES // (run["nodes"] * run["batch_per_node"])
            parameters = known.get(run["model"], {}).get("parameters")
            selections = moves.summed(run["density"], WARMUP, steps / epochs, steps, parameters)
            yield {
                "model": run["model"],
                "algo": "topk",
                "nodes": run["nodes"],
                "batch_per_node": run["batch_per_node"],
                "lr": run["lr"],
                "density": run["density"],
                "momentum": momentum.AFTER,
                "gain": None,
                "data": DATA,
                "schedule": f"job {run['job']}",
                "whole": True,
                "precision": "float32",
                "source": "reference",
                "n": 1,
                "steps": steps,
                "epochs_averaged": 1,
                "moves": moves.moves("topk", selections, run["nodes"]),
                "sent": moves.sent("topk", selections, run["nodes"]),
                "seeds": None,
                "below_dense": dense - run["test_accuracy"][epochs - 1],
            }


def draw(rows: list[Row]) -> Figure:
    figure, axes = _draw.panels(1, 2, height=2.5, sharey=True)
    for panel, x, label in zip(axes, ("moves", "sent"), ("an entry can move", "a node's entry is sent"), strict=True):
        _marks(panel, rows, x)
        panel.set_xlabel(f"times {label} in the run" if _draw.wide() else f"times {label}\nin the run")
    axes[0].set_ylabel("points below dense")
    _legend.draw(figure, _keys(rows))
    _legend.note(figure, *_notes(rows))
    return figure


def _marks(panel: Axes, rows: list[Row], x: str) -> None:
    panel.axhspan(-MARGIN, MARGIN, color="0.93", zorder=0)
    panel.axhline(0, color=_draw.INK, linewidth=0.6, zorder=0.5)
    for row in sorted(rows, key=lambda row: (row["source"] == "trained", row["whole"])):  # whole ones on top
        colour = MOMENTUM[row["momentum"]] if row["source"] == "trained" else _draw.PUBLISHED
        fill = colour if row["whole"] else "white"
        (mark,) = panel.plot(row[x], row["below_dense"], SHAPES[_shape(row)], color=colour, markersize=4)
        mark.set(markerfacecolor=fill, markeredgewidth=0.8, linestyle="", alpha=1.0 if row["whole"] else PALE)
    panel.set_xscale("log")
    panel.set_yscale("symlog", linthresh=1, linscale=0.6)
    gaps = [row["below_dense"] for row in rows]
    least, most = min(-MARGIN, *gaps), max(MARGIN, *gaps)
    panel.set_ylim(1.6 * least, 1.6 * most)  # of a logarithmic scale, on both sides
    panel.set_yticks([tick for tick in TICKS if 1.6 * least <= tick <= 1.6 * most])
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
    panel.margins(x=0.08)


def _shape(row: Row) -> str:
    return _RANDOM if row["algo"] == "randomk" else _UNION if moves.union(row["algo"]) else _FEW


def _keys(rows: list[Row]) -> dict[str, Line2D]:
    """Returns what shapes and colours mean, each once: together they would be more keys than the panel has marks."""
    ours = [row for row in rows if row["source"] == "trained"]
    looks = [(name, shape, _draw.INK) for name, shape in SHAPES.items() if name in map(_shape, ours)]
    looks += [(rule, "o", colour) for rule, colour in MOMENTUM.items() if rule in {row["momentum"] for row in ours}]
    if len(ours) < len(rows):
        looks.append(("reference curves, Top-k", SHAPES[_UNION], _draw.PUBLISHED))
    return {
        name: Line2D([], [], linestyle="None", marker=shape, color=colour, markersize=4)
        for name, shape, colour in looks
    }


def _notes(rows: list[Row]) -> list[str]:
    ours = [row for row in rows if row["source"] == "trained"]
    lines = [
        "Moves: the density, summed over the steps, × P where the update holds what all nodes selected. Sent: that "
        "sum, / P where it holds k entries that one node each has sent. Grey band: within 1 point, where the axis is "
        "linear; beyond, it is logarithmic. Filled: a whole schedule; hollow: a short or a compressed one."
    ]
    if ours:
        models = ", ".join(_draw.model_name(model) for model in sorted({row["model"] for row in ours}))
        nodes = ", ".join(map(str, sorted({row["nodes"] for row in ours})))
        precisions = ", ".join(sorted({row["precision"] for row in ours}))
        datas = ", ".join(sorted({_draw.data_name(row["data"]) for row in ours}))
        whole = sum(row["whole"] for row in ours)
        seeds = f"{whole} marks of whole runs, {len(ours) - whole} of short ones, a run each" + (
            ", or the mean of n = 2 and more" if any(row["n"] > 1 for row in ours) else ""
        )
        averaged = any(row["epochs_averaged"] > 1 for row in ours)
        mean = f"; before the learning rate drops means of {prefixes.EPOCHS} epochs" if averaged else ""
        known = [row for row in ours if row["gain"] and row["model"] in group_options("model")]
        sizes = {row["lr"] * row["gain"] / momentum.usual_lr(row["model"]) for row in known}
        most = max(sizes, default=1.0)
        larger = f"; updates up to {most:.3g} times as large as dense's" if most > 1.01 else ""
        lines.append(
            f"Ours: {models}, {datas}, P = {nodes}, {precisions}; dense of the same schedule and seed{larger}; "
            f"{seeds}{mean}."
        )
    if len(ours) < len(rows):
        lines.append(
            "Reference: kljp/topk_results, Top-k against dense of the same P, batch and learning rate, float32."
        )
    return lines
