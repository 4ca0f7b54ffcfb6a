"""Compares every algorithm trained alike: accuracy, bytes, and the iteration on two networks (not in the paper)."""

import textwrap

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from repro.config import groups
from repro.figures import _curves, _draw, _legend, _names
from repro.iteration_time import IterationTime
from repro.metric import ACCURACY
from repro.report import same_machine
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "What each relaxation costs in the accuracy of a short run, and saves in bytes and time"
COMMAND = "repro run experiment=families"
WIDTH = "double"
NETWORKS = ("ethernet1g", "ethernet10g")  # filled and hollow
LABELS = ("final test accuracy (%)", "bytes sent per node and step", "modelled iteration (ms)")
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
UNKNOWN = ("0.5", "X")  # of an algorithm that this checkout does not have


def table(results: Results) -> list[Row]:
    """Returns one row for each algorithm, the most accurate first. Compute is the median of all runs.

    Seconds of unlike machines do not compare: runs on others than the machine of most have none.
    """
    families = [group for group in results.groups("families", ACCURACY) if group.curve]
    machines = [group.machine for group in families]
    usual = max(machines, key=lambda one: sum(same_machine.alike(one, other) for other in machines), default={})
    rows = []
    for group in families:
        last = _curves.of_group(group)[-1]
        here = same_machine.alike(group.machine, usual)
        times = group.iteration_time if here else []
        milliseconds = {
            time["network"]: 1e3 * IterationTime.of(time).total for time in times if time["source"] == "modelled"
        }
        rows.append(
            {
                **{name: value for name, value in last.items() if name not in LEFT_OUT},
                "family": _family(group.algo),
                "bytes_sent": group.per_step.get("bytes_sent"),
                **{name: group.per_step.get(name) for name in RANGE},
                "busiest_bytes": group.per_step.get("bytes_sent_worst_rank"),
                "socket_bytes": group.socket_bytes,
                **{f"{name}_ms": milliseconds.get(name) for name in NETWORKS},
                "time_source": "modelled",
            }
        )
    return sorted(rows, key=lambda row: (row["model"], -row["test_accuracy"]))


def _family(algo: str) -> str:
    return groups.about_known(algo).get("family", "not known here")


def draw(rows: list[Row]) -> Figure:
    """Draws one line per algorithm; columns: accuracy, bytes, iteration. Colour and marker tell the family.

    A run that has no time on a network, or counted no bytes, has no point there.
    """
    figure, panels = _draw.panels(1, 3, 0.16 * len(rows) + 0.5, sharey=True)
    for y, row in enumerate(reversed(rows)):
        colour, marker = FAMILIES.get(row["family"], UNKNOWN)
        style = {"color": colour, "marker": marker, "linestyle": "", "label": row["family"]}
        panels[0].plot(100 * row["test_accuracy"], y, **style)
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
    panels[0].set_yticks(range(len(rows)), reversed(_names.of_each(rows, *SETTINGS)))
    panels[1].set_xscale("log")
    panels[1].xaxis.set_major_locator(LogLocator(numticks=10))
    panels[1].minorticks_off()
    panels[2].xaxis.set_major_locator(MaxNLocator(5, min_n_ticks=3))
    for panel, label in zip(panels, LABELS, strict=True):
        panel.set_xlabel(label if _draw.wide() else "\n".join(textwrap.wrap(label, 14)), linespacing=0.9)
        panel.margins(x=0.12)
    _legend.of_panels(figure, panels)
    missing = sorted(map(_draw.algo_name, set(groups.group_options("algo")) - {row["algo"] for row in rows}))
    untimed = [_draw.algo_name(row["algo"]) for row in rows if all(row[f"{name}_ms"] is None for name in NETWORKS)]
    spread = any(row["bytes_sent_least"] for row in rows)
    ranges = "; where they depend on values, the mean over steps, and a line for their range" if spread else ""
    _legend.note(
        figure,
        *_draw.runs_note(rows),
        "So short a run says little of a whole one, least of all of sparse algorithms: see the convergence figure.",
        "Filled: 1 Gbps Ethernet; hollow: 10 Gbps. Bytes of rank 0's last step (where it does not send in each, "
        f"the mean of a period{ranges}). Compute is the median of "
        "all runs on this machine, compress each run's own, communication modelled from counted traffic.",
        f"Without a time, as another machine trained them: {', '.join(untimed)}." if untimed else "",
        f"Not run here: {', '.join(missing)}." if missing else "",
    )
    return figure
