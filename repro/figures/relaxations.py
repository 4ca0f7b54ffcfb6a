"""What each relaxation of S-SGD costs an iteration on shaped links, and gains over dense (not in the paper)."""

from repro.figures import _draw
from repro.results import PARTS, Group, Results, iteration_s
from repro.tables import Row

TITLE = "Relaxed iterations measured on shaped links"
COMMAND = "repro run experiment=relaxations"


def table(results: Results) -> list[Row]:
    """One row for each network, number of nodes and algorithm, the fastest first.

    Compute is stated, or the median of all runs; the other parts are those of the run in the middle of n. Nothing is
    sent in the only step of those that do not communicate in every one.
    """
    groups = results.groups("relaxations")
    taken = [(group, time) for group in groups for time in group.iteration_time if time["source"] == "measured"]
    rows = []
    for group, time in taken:
        rows.append(
            {
                "network": _draw.model_name(group.model),
                "link": time["network"],
                "nodes": group.nodes,
                "algorithm": _label(group),
                **{f"{part[:-2]} (ms)": 1e3 * time[part] for part in (*PARTS, "hidden_s")},
                "iteration (ms)": 1e3 * iteration_s(time),
                "sent (MB)": group.per_step["bytes_sent"] / 1e6 or None,
                "n": group.n,
                "source": "measured",
            }
        )
    dense = {_place(row): row["iteration (ms)"] for row in rows if row["algorithm"] == "dense"}
    for row in rows:
        row["over dense"] = dense[_place(row)] / row["iteration (ms)"] if _place(row) in dense else None
    return sorted(rows, key=lambda row: (*_place(row), row["iteration (ms)"]))


def _place(row: Row) -> tuple[str, str, int]:
    return row["network"], row["link"], row["nodes"]


def _label(group: Group) -> str:
    beside = ", overlapped" if group.settings["overlap"] == "on" else ""
    return group.algo + beside
