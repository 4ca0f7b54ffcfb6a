"""Compares every algorithm trained alike: accuracy, bytes, and the iteration on two networks (not in the paper)."""

import textwrap
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from repro.config import groups
from repro.figures import _curves, _draw, _legend, _names, _outlier
from repro.iteration_time import IterationTime
from repro.report import momentum, own_rules, prefixes, same_machine
from repro.report.group import Group
from repro.report.own_rules import Setting
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "What each relaxation costs in the accuracy of a short run, and saves in bytes and time"
COMMAND = "repro run experiment=families"
ALSO = (  # whose runs have the first epochs too
    _curves.CONVERGENCE,
    "repro run experiment=momentum",
    "repro run experiment=select_from_k_times_P",
    "repro run experiment=wire_formats",
)
WIDTH = "double"
NETWORKS = ("ethernet1g", "ethernet10g")  # filled and hollow
LABELS = ("test accuracy (%)", "bytes sent per node and step", "modelled iteration (ms)")
RANGE = ("bytes_sent_least", "bytes_sent_most")  # over the steps, where messages depend on values
FAMILIES = {  # colours are Okabe and Ito's
    "full precision": ("#0072B2", "o"),
    "quantised": ("#D55E00", "s"),
    "low rank": ("#000000", "P"),
    "sparse": ("#009E73", "^"),
    "delayed": ("#E69F00", "v"),
    "decentralised": ("#CC79A7", "D"),
}
# the loss is a mean since the evaluation before, and not all runs were evaluated as often
LEFT_OUT = ("network", "time_source", "seconds", "train_loss", "train_loss_std")
SETTINGS = ("model", "nodes", "density", "schedule", "data", "precision")  # are told where there are several
WIDE, NARROW = 44, 24  # letters in a line of a row's name, over two columns of a page and over one
NO_SECONDS = {**{f"{name}_ms": None for name in NETWORKS}, "timed_on": None}
UNKNOWN = ("0.5", "X")  # of an algorithm that this checkout does not have


def table(results: Results) -> list[Row]:
    """Returns one row for each algorithm and density over one schedule (`own_rules`), the most accurate first.

    Seconds are those of the schedule of which most settings have some, as an iteration takes as long in any. Compute is
    the median of all runs on one machine. Seconds of unlike machines do not compare: runs on others than the machine of
    most have none.
    """
    schedules = own_rules.by_schedule(results, "families")
    settings = own_rules.of_most(schedules)
    others = [one for one in schedules if one is not settings]
    timed, seconds = max(((one, _seconds(one)) for one in (settings, *others)), key=lambda both: len(both[1]))
    elsewhere = None if timed is settings else f"{timed[0].schedule}, {timed[0].groups[0].settings['precision']}"
    rows = [_row(one) | seconds.get(_place(one), NO_SECONDS) | {"seconds of": elsewhere} for one in settings]
    return sorted(rows, key=lambda row: (row["model"], -row["test_accuracy"]))


def _place(setting: Setting) -> tuple[Any, ...]:
    group = setting.groups[0]
    return group.model, group.algo, group.nodes, group.batch, group.settings["density"]


def _seconds(settings: list[Setting]) -> dict[tuple[Any, ...], Row]:
    """Returns the cells with times of those settings that were timed on the machine of most of them."""
    machines = [group.machine for one in settings for group in one.groups if _modelled(group)]
    usual = max(machines, key=lambda one: sum(same_machine.alike(one, other) for other in machines), default={})
    where, found = same_machine.processor(usual) or usual.get("cpu", "unknown"), {}
    for one in settings:
        timed = (_modelled(group) for group in one.groups if same_machine.alike(group.machine, usual))
        if milliseconds := next(filter(None, timed), {}):
            found[_place(one)] = {f"{name}_ms": milliseconds.get(name) for name in NETWORKS} | {"timed_on": where}
    return found


def _row(setting: Setting) -> Row:
    """Returns the row of the runs of one setting, but for seconds."""
    same, epoch, schedule = setting
    group = same[0]
    lengths = (prefixes.averaged(group, epoch), 1)  # where the last epochs were not all evaluated, the last alone
    pooled, over = next((one, over) for over in lengths for one in prefixes.at_epoch(same, epoch, over))
    (row,) = (row for row in _curves.of_group(group) if row["epoch"] == epoch)
    return {
        **{name: value for name, value in row.items() if name not in LEFT_OUT},
        "schedule": schedule,
        "whole": group.whole and epoch == group.epochs,
        "n": pooled.n,
        "seeds": " ".join(map(str, sorted(pooled.accuracies or pooled.group.seeds))),
        "rule": momentum.rule(group.settings),
        "effective_lr": momentum.effective_lr(group.settings),
        "accuracy_of_seed_0": pooled.accuracies[0] / 100 if 0 in pooled.accuracies else None,
        "test_accuracy": pooled.mean / 100,
        "test_accuracy_std": None if pooled.std is None else pooled.std / 100,
        "epochs averaged": over,
        "family": groups.about_known(group.algo).get("family", "not known here"),
        "bytes_sent": group.per_step.get("bytes_sent"),
        **{name: group.per_step.get(name) for name in RANGE},
        "busiest_bytes": group.per_step.get("bytes_sent_worst_rank"),
        "socket_bytes": group.socket_bytes,
        "time_source": "modelled",
    }


def _modelled(group: Group) -> dict[str, float]:
    times = [time for time in group.iteration_time if time["source"] == "modelled"]
    return {time["network"]: 1e3 * IterationTime.of(time).total for time in times}


def draw(rows: list[Row]) -> Figure:
    """Draws one line per algorithm; columns: accuracy, bytes, iteration. Colour and marker tell the family.

    A run that has no time on a network, or counted no bytes, has no point there.
    """
    names = _names.of_each(rows, *SETTINGS)
    wrapped = list(map(_wrapped, names))
    lines = max((name.count("\n") + 1 for name in wrapped), default=1)
    figure, panels = _draw.panels(1, 3, (0.04 + 0.12 * lines) * len(rows) + 0.5, sharey=True)
    for y, row in enumerate(reversed(rows)):
        colour, marker = FAMILIES.get(row["family"], UNKNOWN)
        style = {"color": colour, "marker": marker, "linestyle": "", "label": row["family"]}
        panels[0].plot(100 * row["test_accuracy"], y, **style)
        if row["test_accuracy_std"]:
            ends = [100 * (row["test_accuracy"] + side * row["test_accuracy_std"]) for side in (-1, 1)]
            panels[0].plot(ends, [y, y], color=colour, linewidth=0.8)
        if row["bytes_sent_least"]:
            panels[1].plot([row[name] for name in RANGE], [y, y], color=colour, linewidth=0.8)
        filled, hollow = (row[f"{name}_ms"] for name in NETWORKS)
        for panel, x, height, changes in (
            (panels[1], row["bytes_sent"], y, {}),
            (panels[2], hollow, y + 0.2, {"markerfacecolor": "white", "label": "hollow: 10 Gbps"}),
            (panels[2], filled, y - 0.2, {}),
        ):
            if x is not None:
                panel.plot(x, height, **style | changes)
    for reference in _references(rows):
        panels[0].axvline(100 * reference, color="0.6", linestyle="--", linewidth=0.8, zorder=0)
    _outlier.cut(
        panels[0],
        [
            (100 * row["test_accuracy"], y, FAMILIES.get(row["family"], UNKNOWN)[0])
            for y, row in enumerate(reversed(rows))
        ],
    )
    panels[0].set_yticks(range(len(rows)), reversed(wrapped), linespacing=0.95)
    panels[0].set_ylim(-0.6, len(rows) - 0.4)
    panels[1].set_xscale("log")
    panels[1].xaxis.set_major_locator(LogLocator(numticks=10))
    panels[1].minorticks_off()
    low, high = panels[1].get_xlim()
    if high < 100 * low:  # it may have a single power of ten on it, or none
        _draw.plain_log(panels[1], "x")
    for panel in (panels[0], panels[2]):
        panel.xaxis.set_major_locator(MaxNLocator(5, min_n_ticks=3))
    letters = _letters(figure)
    for panel, label in zip(panels, LABELS, strict=True):
        panel.set_xlabel("\n".join(textwrap.wrap(label, letters)), linespacing=0.9)
        if panel.get_autoscalex_on():
            panel.margins(x=0.12)
    _legend.of_panels(figure, panels)
    missing = sorted(map(_draw.algo_name, set(groups.group_options("algo")) - {row["algo"] for row in rows}))
    machine = next((row["timed_on"] for row in rows if row["timed_on"]), "")
    elsewhere = next((row["seconds of"] for row in rows if row["seconds of"]), "")
    untimed = [name for name, row in zip(names, rows, strict=True) if not row["timed_on"]]
    spread = any(row["bytes_sent_least"] for row in rows)
    ranges = "; where they depend on values, the mean over steps, and a line for their range" if spread else ""
    _legend.note(
        figure,
        *_draw.runs_note(rows),
        _of_accuracies(rows, names),
        _rules(rows, names),
        "Filled: 1 Gbps Ethernet; hollow: 10 Gbps. Bytes of rank 0's last step (where it does not send in each, "
        f"the mean of a period{ranges}).",
        f"Compute is the median of all runs that were timed on the machine of most ({machine}), compress each run's "
        "own, communication modelled from counted traffic."
        + (f" These runs are of the {elsewhere}." if elsewhere else "")
        if machine
        else "",
        f"Without a time, as no run of theirs was timed there: {'; '.join(untimed)}." if machine and untimed else "",
        f"Not run here: {', '.join(missing)}." if missing else "",
    )
    return figure


def _references(rows: list[Row]) -> list[float]:
    """Returns dense's accuracy of seed 0 with each model, if most rows are of that seed alone and dense's is not."""
    alone = sum(row["seeds"] == "0" for row in rows)
    dense = [row for row in rows if row["algo"] == "dense" and row["seeds"] != "0"]
    return [row["accuracy_of_seed_0"] for row in dense if row["accuracy_of_seed_0"] and 2 * alone > len(rows)]


def _rules(rows: list[Row], names: list[str]) -> str:
    """Says which algorithms have another momentum and step than most, as what they cost here is that of both."""
    by_rule: dict[tuple[str, float], list[str]] = {}
    for name, row in zip(names, rows, strict=True):
        by_rule.setdefault((row["rule"], row["effective_lr"]), []).append(name)
    most, *others = sorted(by_rule, key=lambda key: -len(by_rule[key]))
    said = [f"{rule}, {lr:g}: {', '.join(by_rule[rule, lr])}" for rule, lr in others]
    return (
        f"Each by its own rules of momentum, with steps of lr / (1 - momentum), a gain counted in: {most[0]}, "
        f"{most[1]:g}; {'; '.join(said)}. So a difference between rows of unlike rules is not of what is sent alone."
        if said
        else ""
    )


def _wrapped(name: str) -> str:
    """Breaks the name of a row after its commas, where it is long."""
    lines = textwrap.wrap(name.replace(" ", "\u00a0").replace(",\u00a0", ", "), WIDE if _draw.wide() else NARROW)
    return "\n".join(lines).replace("\u00a0", " ")


def _letters(figure: Figure) -> int:
    """Returns how many letters of an axis' label fit under a panel, beside the names of the rows."""
    first = figure.axes[0]
    renderer = FigureCanvasAgg(figure).get_renderer()
    names = max((name.get_window_extent(renderer).width for name in first.get_yticklabels()), default=0.0)
    letter = 0.5 * float(first.xaxis.label.get_fontsize()) * figure.dpi / 72
    return max(8, int((figure.bbox.width - names) / len(figure.axes) / letter))


def _of_accuracies(rows: list[Row], names: list[str]) -> str:
    spans = sorted({(row["epoch"], row["epochs averaged"]) for row in rows if row["epochs averaged"] > 1})
    means = " or ".join(f"{last - over + 1:g} to {last:g}" for last, over in spans)
    single = [name for name, row in zip(names, rows, strict=True) if row["epochs averaged"] == 1]
    alone = f"; of the last epoch alone, as others were not evaluated: {'; '.join(single)}" if single else ""
    mean = f"Means of epochs {means}{alone}. " if spans else ""
    spread = any(row["test_accuracy_std"] for row in rows)
    line = "A line beside an accuracy is one standard deviation over seeds. " if spread else ""
    if _references(rows):
        line += "Dashed: dense of seed 0, of which most rows are; other rows have the seeds that n counts. "
    short = "So short a run says little of a whole one, least of all of sparse algorithms: see the convergence figure."
    return mean + line + ("" if all(row["whole"] for row in rows) else short)
