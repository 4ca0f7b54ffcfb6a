"""Draws where momentum belongs when updates are sparse and late: on a quadratic, and in runs (not in the paper)."""

import textwrap
from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from repro.figures import _curves, _draw, _legend, _names, _outlier
from repro.metric import ACCURACY
from repro.report import momentum, prefixes
from repro.report.momentum import RULES
from repro.report.prefixes import Pooled
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Where momentum comes: stability on a quadratic, and accuracy of runs"
WIDTH = "double"
COMMAND = "repro run experiment=momentum"
ANALYSIS = "python benchmarks/quadratic.py"
ALSO = (ANALYSIS, _curves.CONVERGENCE, "repro run experiment=wire_formats")
LETTERS = 40  # in a line of a panel's title
LINE = 0.14  # inches of a panel's height for each name
RANDOM = "no momentum, random entries"
LOOKS = dict(zip(RULES, (("#009E73", "o"), ("#E69F00", "s"), ("#D55E00", "D"), ("#000000", "v")), strict=True))
LOOKS[RANDOM] = ("#888888", "X")
WORDS = {  # in the names of runs, and what they mean
    "gTop-k exact": "gTop-k exact: the k largest of all that the nodes selected, chosen at once.",
    "exact rule": "Exact rule: residuals keep what a merge drops.",
    "masked": "Masked: what is selected leaves the velocity.",
    "delivered": "Delivered: what got into the update leaves it.",
    "clipped": "Clipped: each node's gradient, to a norm of 1 / sqrt(P), and masked.",
    "boost": "Boost: what waits counts up to so many times.",
    "decay": "Decay: the weight decay, elsewhere 0.0001.",
}
# its other words are those of RULES
OF_THE_ANALYSIS = {"after aggregation": RULES[0], "none": RULES[3], "none, random entries": RANDOM}


def table(results: Results) -> list[Row]:
    """Returns limits of lr / (1 - momentum) times the curvature, and accuracies at the last epoch of all runs."""
    computed = results.summaries.get("quadratic", {})
    rows = [
        {
            "source": "computed",
            "rule": OF_THE_ANALYSIS.get(row["rule"], row["rule"]),
            "density": row["density"],
            "n": len(row["limits"]),
            "seeds": " ".join(map(str, computed.get("seeds", ()))),
            "limit": sum(row["limits"]) / len(row["limits"]),
            "least": min(row["limits"]),
            "most": max(row["limits"]),
            **dict.fromkeys(("model", "algo", "nodes", "batch_per_node", "data", "schedule", "epoch")),
            **dict.fromkeys(("epochs averaged", "precision")),
            **dict.fromkeys(("test_accuracy", "test_accuracy_std")),
        }
        for row in computed.get("rows", [])
    ]
    trained = (_row_of(*run) for run in runs(results))
    return rows + sorted(trained, key=lambda row: (_panel(row), -row["test_accuracy"]))


def runs(results: Results) -> Iterator[tuple[Pooled, str, float, int]]:
    """Yields all seeds of each setting of the experiment, with their schedule, their epoch and of how many a mean is.

    A whole run of the same kind is one of them.

    All are compared where the shortest of their kind ends, and whole runs, if the experiment has one, at their end too.
    Before the learning rate has dropped that is the mean of `prefixes.EPOCHS`.
    """
    mine = [group for group in results.groups("momentum", ACCURACY) if group.curve]
    for kind in sorted(set(map(prefixes.kind, mine)), key=str):
        alike = [group for group in mine if prefixes.kind(group) == kind]
        whole = [group for group in results.groups("convergence") if prefixes.kind(group) == kind]
        settings = {prefixes.of_any_length(group) for group in (*alike, *whole)}
        more = [group for group in results.groups("wire_formats", ACCURACY) if prefixes.kind(group) == kind]
        whole += [group for group in more if prefixes.of_any_length(group) in settings]  # other seeds of a setting
        ends = {min((group.epochs, group.schedule) for group in alike)}
        ends |= {(group.epochs, group.schedule) for group in alike if group.whole}
        for epoch, schedule in sorted(ends):
            over = prefixes.averaged(alike[0], epoch)
            for pooled in prefixes.at_epoch((*whole, *alike), epoch, over):
                yield pooled, schedule, epoch, over


def name(pooled: Pooled) -> str:
    """Returns the name of an algorithm in this figure: what else its runs differ in is in it, but for RULES."""
    return _names.of_group(pooled.group) + _warm_up(pooled.group.settings)


def _row_of(pooled: Pooled, schedule: str, epoch: float, over: int) -> Row:
    settings = pooled.group.settings
    return {
        "source": "trained",
        "rule": momentum.rule(settings),
        "density": settings["density"],
        "n": pooled.n,
        "seeds": pooled.seeds,
        **dict.fromkeys(("limit", "least", "most")),
        "model": pooled.group.model,
        "algo": name(pooled),
        "nodes": pooled.group.nodes,
        "batch_per_node": pooled.group.batch,
        "data": pooled.group.data,
        "schedule": schedule,
        "epoch": epoch,
        "epochs averaged": over,
        "precision": settings["precision"],
        "test_accuracy": pooled.mean / 100,
        "test_accuracy_std": None if pooled.std is None else pooled.std / 100,
    }


def _warm_up(settings: Row) -> str:
    return " without density warm-up" if settings["algo"].get("sparse") and not settings["density_warmup"] else ""


def draw(rows: list[Row]) -> Figure:
    runs = [row for row in rows if row["source"] == "trained"]
    kinds = sorted({_panel(row) for row in runs})
    most = max((len({row["algo"] for row in runs if _panel(row) == kind}) for kind in kinds), default=0)
    figure, panels, _ = _draw.grid(1 + len(kinds), columns=1, height=max(2.1, LINE * most))
    limits, *accuracies = panels
    one_analysis(limits, [row for row in rows if row["source"] == "computed"])
    for panel, kind in zip(accuracies, kinds, strict=True):
        _accuracies(panel, [row for row in runs if _panel(row) == kind])
        panel.set_title("\n".join(textwrap.wrap(_title(kind, kinds), LETTERS)), linespacing=0.9)
    _legend.of_panels(figure, panels)
    _legend.note(figure, *_notes(rows, runs))
    return figure


def one_analysis(panel: Axes, rows: list[Row]) -> None:
    if not rows:
        panel.set_axis_off()
        return
    for rule, (colour, marker) in LOOKS.items():
        mine = [row for row in rows if row["rule"] == rule]
        # the first two have nearly the same limits: one line is broken, with larger open marks around the other's
        over = {"ls": "--", "markerfacecolor": "none", "markersize": 7} if rule == RULES[1] else {"ls": "-"}
        x, y = ([row[name] for row in mine] for name in ("density", "limit"))
        panel.plot(x, y, marker, color=colour, label=rule, **over)
    panel.set_title("limits of stability on a quadratic")
    panel.set_xscale("log")
    panel.set_yscale("log")
    _draw.plain_log(panel)
    panel.set_xlabel("density ρ")
    panel.set_ylabel("largest stable lr × curvature\n/ (1 - momentum)")


def _panel(row: Row) -> tuple[Any, ...]:
    """Returns what all runs of a panel share, as those of a `_kind` do."""
    shared = ("nodes", "epoch", "precision", "model", "schedule", "data", "batch_per_node")
    return tuple(row[name] for name in shared)


def _title(kind: tuple[Any, ...], kinds: list[tuple[Any, ...]]) -> str:
    """Returns P and the schedule, and of what else panels have, that in which others of these differ."""
    others = [one for one in kinds if (one[0], one[4]) == (kind[0], kind[4])]
    said = {2: kind[2], 3: _draw.model_name(kind[3]), 5: _draw.data_name(kind[5]), 6: f"batch {kind[6]} per node"}
    unlike = [text for place, text in said.items() if len({one[place] for one in others}) > 1]
    return ", ".join([f"P = {kind[0]}", kind[4], *unlike])


def _accuracies(panel: Any, rows: list[Row]) -> None:
    rows = sorted(rows, key=lambda row: row["test_accuracy"])
    rows = [row | {"algo": name} for row, name in zip(rows, _names.of_each(rows, "density"), strict=True)]
    names = list(dict.fromkeys(row["algo"] for row in rows))
    for rule, (colour, marker) in LOOKS.items():
        mine = [row for row in rows if row["rule"] == rule]
        if mine:
            at = [names.index(row["algo"]) for row in mine]
            spread = [100 * (row["test_accuracy_std"] or 0) for row in mine]
            values = [100 * row["test_accuracy"] for row in mine]
            open_mark = {"markerfacecolor": "none"} if rule == RULES[1] else {}  # as in the first panel
            panel.errorbar(values, at, xerr=spread, fmt=marker, color=colour, label=rule, linewidth=0.8, **open_mark)
    marks = [(100 * row["test_accuracy"], names.index(row["algo"]), LOOKS[row["rule"]][0]) for row in rows]
    panel.margins(x=0.1)
    _outlier.cut(panel, marks)
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(-0.6, len(names) - 0.4)
    epoch, over = rows[0]["epoch"], rows[0]["epochs averaged"]
    when = f"after {epoch:.3g} epochs" if over == 1 else f"in epochs {epoch - over + 1:g}–{epoch:g}"
    panel.set_xlabel(f"test accuracy {when} (%)")


def _notes(rows: list[Row], runs: list[Row]) -> list[str]:
    seeds = next((row["n"] for row in rows if row["source"] == "computed"), 0)
    analysis = (
        f"Limits ({ANALYSIS}): SGD with error feedback on a coupled quadratic of 400 entries, momentum 0.9, "
        f"mean of {seeds} starts."
    )
    lines = [analysis] * bool(seeds)
    for kind in sorted({_panel(row) for row in runs}):
        alike = [row for row in runs if _panel(row) == kind]
        counts = ", ".join(map(str, sorted({row["n"] for row in alike})))
        density = " and ".join(f"{one:g}" for one in sorted({row["density"] for row in alike} - {1}) or [1])
        what = "Means over epochs" if alike[0]["epochs averaged"] > 1 else "Accuracies"
        lines.append(
            f"{what}, P = {kind[0]}: {_draw.model_name(kind[3])}, {_draw.data_name(kind[5])}, density {density}, "
            f"batch {kind[6]} per node, {kind[2]}, {kind[4]}, n = {counts}."
        )
    if any(row["test_accuracy_std"] for row in runs):
        lines.append("A line beside an accuracy is one standard deviation over seeds.")
    if any(row["n"] == 1 and row["epochs averaged"] > 1 for row in runs):
        lines.append(
            "Before the rate drops single runs of one setting differ by a point or more, so gaps of that size mean "
            "nothing where n = 1."
        )
    if any(row["rule"] == momentum.NONE for row in runs):
        lines.append("No momentum: ten times the learning rate, where no other is named.")
    lines.append(
        " ".join(said for word, said in WORDS.items() if any(word in row["algo"] + row["rule"] for row in runs))
    )
    return lines
