"""Draws where momentum belongs when updates are sparse and late: on a quadratic, and in runs (not in the paper)."""

from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure

from repro.figures import _draw, _legend
from repro.metric import ACCURACY
from repro.report import momentum
from repro.report.momentum import RULES
from repro.report.summaries import Group, Results
from repro.tables import Row

TITLE = "Where momentum comes: stability on a quadratic, and accuracy of runs"
COMMAND = "repro run experiment=momentum"
ANALYSIS = "python benchmarks/quadratic.py"
LOOKS = dict(zip(RULES, (("#009E73", "o"), ("#E69F00", "s"), ("#D55E00", "D"), ("#000000", "v")), strict=True))
OF_THE_ANALYSIS = {"after aggregation": RULES[0], "none": RULES[3]}  # its other words are those of RULES


def table(results: Results) -> list[Row]:
    """Returns limits of lr / (1 - momentum) times the curvature, and accuracies at the last epoch of all runs."""
    computed = results.summaries.get("quadratic", {})
    rows = [
        {
            "source": "computed",
            "rule": OF_THE_ANALYSIS.get(row["rule"], row["rule"]),
            "density": row["density"],
            "n": len(row["limits"]),
            "limit": sum(row["limits"]) / len(row["limits"]),
            "least": min(row["limits"]),
            "most": max(row["limits"]),
            **dict.fromkeys(("model", "algo", "nodes", "schedule", "epoch", "precision")),
            **dict.fromkeys(("test_accuracy", "test_accuracy_std")),
        }
        for row in computed.get("rows", [])
    ]
    return rows + sorted(_runs(results), key=lambda row: (row["nodes"], -row["test_accuracy"]))


def _runs(results: Results) -> Iterator[Row]:
    """Yields a row for each run of the experiment, and for whole runs of the same kind at the same epoch."""
    mine = [group for group in results.groups("momentum", ACCURACY) if group.curve]
    if not mine:
        return
    epoch = min(group.epochs for group in mine)
    kinds = {_kind(group) for group in mine}
    whole = [group for group in results.groups("convergence") if _kind(group) in kinds]
    for group in {str(group.settings | {"epochs": 0}): group for group in (*whole, *mine)}.values():
        at = next((row for row in group.curve if row["epoch"] == epoch), None)
        if at is not None:
            yield {
                "source": "trained",
                "rule": momentum.rule(group.settings),
                "density": group.settings["density"],
                "n": group.n,
                **dict.fromkeys(("limit", "least", "most")),
                "model": group.model,
                "algo": _named(group),
                "nodes": group.nodes,
                "schedule": _schedule(group),
                "epoch": epoch,
                "precision": group.settings["precision"],
                "test_accuracy": at["test_accuracy"],
                "test_accuracy_std": at["test_accuracy_std"],
            }


def _schedule(group: Group) -> str:
    steps, epochs = group.settings["steps"], group.settings["epochs"]
    return group.schedule if steps is None else f"first {steps} steps of the schedule compressed to {epochs} epochs"


def _kind(group: Group) -> tuple[Any, ...]:
    return group.model, group.nodes, group.settings["precision"], group.settings["scale_schedule"], group.data


def _named(group: Group) -> str:
    algo = group.settings["algo"]
    more = ["exact rule"] * (group.algo == "gtopk" and algo["options"].get("residual") == "exact")
    more += ["delivered"] * (algo.get("mask") == "delivered") + ["clipped"] * bool(algo.get("clip"))
    return _draw.algo_name(group.algo) + (f" ({', '.join(more)})" if more else "")


def draw(rows: list[Row]) -> Figure:
    runs = [row for row in rows if row["source"] == "trained"]
    nodes = sorted({row["nodes"] for row in runs})
    figure, panels = _draw.panels(1 + len(nodes), height=2.1)
    limits, *accuracies = panels
    for rule, (colour, marker) in LOOKS.items():
        mine = [row for row in rows if row["source"] == "computed" and row["rule"] == rule]
        # the first two have nearly the same limits: one line is broken, with larger open marks around the other's
        over = {"ls": "--", "markerfacecolor": "none", "markersize": 7} if rule == RULES[1] else {"ls": "-"}
        x, y = ([row[name] for row in mine] for name in ("density", "limit"))
        limits.plot(x, y, marker, color=colour, label=rule, **over)
    limits.set_xscale("log")
    limits.set_yscale("log")
    _draw.plain_log(limits)
    limits.set_xlabel("density ρ")
    limits.set_ylabel("largest stable lr × curvature\n/ (1 - momentum)")
    for panel, size in zip(accuracies, nodes, strict=True):
        _accuracies(panel, [row for row in runs if row["nodes"] == size])
        panel.set_title(f"P = {size}")
    _legend.of_panels(figure, panels)
    _legend.note(figure, *_notes(rows, runs))
    return figure


def _accuracies(panel: Any, rows: list[Row]) -> None:
    names = list(dict.fromkeys(row["algo"] for row in sorted(rows, key=lambda row: row["test_accuracy"])))
    for rule, (colour, marker) in LOOKS.items():
        mine = [row for row in rows if row["rule"] == rule]
        if mine:
            at = [names.index(row["algo"]) for row in mine]
            spread = [100 * (row["test_accuracy_std"] or 0) for row in mine]
            values = [100 * row["test_accuracy"] for row in mine]
            panel.errorbar(values, at, xerr=spread, fmt=marker, color=colour, label=rule, linewidth=0.8)
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(-0.6, len(names) - 0.4)
    panel.set_xlabel(f"test accuracy after {rows[0]['epoch']:.2g} epochs (%)")


def _notes(rows: list[Row], runs: list[Row]) -> list[str]:
    seeds = next((row["n"] for row in rows if row["source"] == "computed"), 0)
    lines = [
        f"Limits ({ANALYSIS}): SGD with error feedback on a coupled quadratic of 400 entries, momentum 0.9, "
        f"mean of {seeds} starts."
    ]
    if runs:
        first = runs[0]
        counts = ", ".join(map(str, sorted({row["n"] for row in runs})))
        lines.append(
            f"Accuracies: {_draw.model_name(first['model'])}, density {min(row['density'] for row in runs):g}, "
            f"{first['precision']}, {first['schedule']}, n = {counts}; no momentum: ten times the lr."
        )
    return lines
