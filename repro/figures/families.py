"""Every algorithm trained alike: accuracy, bytes, and the iteration on two networks (not in the paper)."""

from matplotlib.figure import Figure

from repro import choices
from repro.figures import _curves, _draw
from repro.results import Results, iteration_s
from repro.tables import Row

TITLE = "What each relaxation costs in accuracy, and saves in bytes and time"
COMMAND = "repro run experiment=families"
NETWORKS = ("ethernet1g", "ethernet10g")
FAMILIES = {  # colours are Okabe and Ito's
    "full precision": ("#0072B2", "o"),
    "quantised": ("#D55E00", "s"),
    "low rank": ("#000000", "P"),
    "sparse": ("#009E73", "^"),
    "delayed": ("#E69F00", "v"),
    "decentralised": ("#CC79A7", "D"),
}


def table(results: Results) -> list[Row]:
    """One row for each algorithm, the most accurate first. Compute is the median of all runs."""
    groups = [group for group in results.groups("families") if group.curve]
    rows = []
    for group in groups:
        last = _curves.of_group(group)[-1]
        taken = {time["network"]: 1e3 * iteration_s(time) for time in group.iteration_time}
        rows.append(
            {
                **{name: value for name, value in last.items() if name not in ("network", "time_source", "seconds")},
                "family": choices.about(group.algo)["family"],
                "bytes_sent": group.per_step["bytes_sent"],
                **{f"{name}_ms": taken.get(name) for name in NETWORKS},
                "time_source": "modelled",
            }
        )
    return sorted(rows, key=lambda row: (row["model"], -row["test_accuracy"]))


def draw(rows: list[Row]) -> Figure:
    """One line for each algorithm; columns: accuracy, bytes, iteration. Colour and marker tell the family."""
    figure = Figure(figsize=(2 * _draw.WIDTH, 0.16 * len(rows) + 0.9), layout="constrained")
    panels = list(figure.subplots(1, 3, sharey=True))
    for y, row in enumerate(reversed(rows)):
        colour, marker = FAMILIES[row["family"]]
        style = {"color": colour, "marker": marker, "linestyle": "", "label": row["family"]}
        panels[0].plot(100 * row["test_accuracy"], y, **style)
        panels[1].plot(row["bytes_sent"], y, **style)
        panels[2].plot(row["ethernet10g_ms"], y, markerfacecolor="white", **style | {"label": "_"})
        panels[2].plot(row["ethernet1g_ms"], y, **style)
    panels[0].set_yticks(range(len(rows)), [_draw.look(row["algo"]).label for row in reversed(rows)])
    panels[0].set_xlabel("final test accuracy (%)")
    panels[1].set(xlabel="bytes sent per node and step", xscale="log")
    panels[1].minorticks_off()
    panels[2].set_xlabel("modelled iteration (ms)")
    _draw.legend(figure, panels, 6)
    missing = sorted(set(choices.group_options("algo")) - {row["algo"] for row in rows})
    _draw.note(
        figure,
        *_draw.runs_note(rows),
        "Filled: 1 Gbps Ethernet; hollow: 10 Gbps. Bytes of the last step (of those that do not send in each, the "
        "mean of a period). Compute is the median of all runs on this machine, compress each run's own, communication "
        "modelled from counted traffic.",
        f"Not run yet: {', '.join(missing)}." if missing else "",
    )
    return figure
