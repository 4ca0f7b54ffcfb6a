"""Draws how far sparse S-SGD ends below dense, against how often an entry can move in the run: when it is free."""

from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from repro.figures import _curves, _draw, _legend
from repro.report import momentum, pairs, reference_curves
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
DATA, IMAGES = "cifar10", 50_000
UNION = {"topk", "dgc"}  # their update holds what all nodes selected, up to k of each; the others' holds k entries
ALL_SEND = {"dense", "randomk", "scalecom"}  # every node sends each entry of an update; elsewhere about one does
_FEW, _UNION, _RANDOM = "k entries an update", "up to k × P (Top-k, DGC)", "k random entries"
SHAPES = {_FEW: "^", _UNION: "s", _RANDOM: "X"}
MOMENTUM = dict(zip(momentum.RULES, ("#009E73", "#E69F00", "#D55E00", "#000000"), strict=True))
TICKS = (-10, -3, -1, 0, 1, 3, 10, 30)


def table(results: Results) -> list[Row]:
    """Returns one row per run: ours on CIFAR-10 that have a dense run like them, and the reference's Top-k."""
    groups: dict[str, Group] = {}  # by first run; of two experiments that share it, the group of more seeds
    for _, group in results.all_groups():
        if group.settings["data"]["name"] == DATA and group.n >= groups.get(group.runs[0], group).n:
            groups[group.runs[0]] = group
    trained = [group for group in groups.values() if group.settings["steps"] is None]
    dense = [group for group in trained if group.algo == "dense"]
    rows = []
    for group in trained:
        if group.settings["density"] < 1 and (pair := pairs.best([group], dense)):
            rows += _of_pair(pair)
    return rows + list(_of_reference(results.reference))


def _of_pair(pair: Pair) -> list[Row]:
    """Returns a row for each seed that both have kept; otherwise one, for the mean of several."""
    group, settings = pair.ours, pair.ours.settings
    mine, dense = (pairs.accuracies(one, pair.epoch) for one in (group, pair.reference))
    ours, theirs = pair.accuracies
    gaps = {str(seed): dense[seed] - mine[seed] for seed in pair.seeds()}
    several = {} if gaps else {" ".join(map(str, group.seeds)): theirs - ours}
    steps = next(row["step"] for row in group.curve if row["epoch"] == pair.epoch)
    same = {
        "model": group.model,
        "algo": group.algo,
        "nodes": group.nodes,
        "batch_per_node": settings["batch_per_node"] * settings["accumulate"],
        "lr": settings["lr"],
        "density": settings["density"],
        "momentum": momentum.rule(settings),
        "data": group.data,
        "schedule": pair.schedule,
        "whole": pair.whole,
        "precision": settings["precision"],
        "source": "trained",
        "n": 1 if gaps else group.n,
        "steps": steps,
        "moves": moves(group.algo, settings["density"], steps, group.nodes),
        "sent": sent(group.algo, settings["density"], steps, group.nodes),
    }
    return [same | {"seeds": seeds, "below_dense": gap} for seeds, gap in (gaps | several).items()]


def moves(algo: str, density: float, steps: float, nodes: int) -> float:
    """Returns how many times an entry can be in the update, on average over all entries."""
    return density * steps * (nodes if algo in UNION else 1)


def sent(algo: str, density: float, steps: float, nodes: int) -> float:
    """Returns how many times a node sends what it holds of an entry, on average over all, and it gets into the update.

    The k largest entries of unlike nodes are nearly all unlike: each of an update's k is what one node held.
    """
    return moves(algo, density, steps, nodes) / (1 if algo in ALL_SEND else nodes)


def _of_reference(runs: list[Run]) -> Iterator[Row]:
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
            yield {
                "model": run["model"],
                "algo": "topk",
                "nodes": run["nodes"],
                "batch_per_node": run["batch_per_node"],
                "lr": run["lr"],
                "density": run["density"],
                "momentum": momentum.AFTER,
                "data": DATA,
                "schedule": f"job {run['job']}",
                "whole": True,
                "precision": "float32",
                "source": "reference",
                "n": 1,
                "steps": steps,
                "moves": moves("topk", run["density"], steps, run["nodes"]),
                "sent": sent("topk", run["density"], steps, run["nodes"]),
                "seeds": None,
                "below_dense": dense - run["test_accuracy"][epochs - 1],
            }


def draw(rows: list[Row]) -> Figure:
    figure, axes = _draw.panels(1, 2, height=2.5, sharey=True)
    for panel, x, label in zip(axes, ("moves", "sent"), ("an entry can move", "a node's entry is sent"), strict=True):
        _marks(panel, rows, x)
        panel.set_xlabel(f"times {label}\nin the run")
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
        mark.set(markerfacecolor=fill, markeredgewidth=0.8, linestyle="")
    panel.set_xscale("log")
    panel.set_yscale("symlog", linthresh=1, linscale=0.6)
    gaps = [row["below_dense"] for row in rows]
    least, most = min(-MARGIN, *gaps), max(MARGIN, *gaps)
    panel.set_ylim(1.6 * least, 1.6 * most)  # of a logarithmic scale, on both sides
    panel.set_yticks([tick for tick in TICKS if least <= tick <= most])
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
    panel.margins(x=0.08)


def _shape(row: Row) -> str:
    return _RANDOM if row["algo"] == "randomk" else _UNION if row["algo"] in UNION else _FEW


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
        "Moves: density × steps, × P where the update holds what all nodes selected. Sent: density × steps, / P where "
        "it holds k entries that one node each has sent. Grey band: within 1 point. Filled: a whole schedule; hollow: "
        "a short or a compressed one."
    ]
    if ours:
        models = ", ".join(_draw.model_name(model) for model in sorted({row["model"] for row in ours}))
        nodes = ", ".join(map(str, sorted({row["nodes"] for row in ours})))
        precisions = ", ".join(sorted({row["precision"] for row in ours}))
        datas = ", ".join(sorted({_draw.data_name(row["data"]) for row in ours}))
        seeds = "a mark a run" + (", or the mean of n = 2 and more" if any(row["n"] > 1 for row in ours) else "")
        lines.append(f"Ours: {models}, {datas}, P = {nodes}, {precisions}; dense of the same schedule; {seeds}.")
    if len(ours) < len(rows):
        lines.append(
            "Reference: kljp/topk_results, Top-k against dense of the same P, batch and learning rate, float32."
        )
    return lines
