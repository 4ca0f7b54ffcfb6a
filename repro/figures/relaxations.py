"""Lists what each relaxation of S-SGD costs an iteration on shaped links, and gains over dense (not in the paper)."""

from repro.config.groups import title
from repro.figures import _draw
from repro.iteration_time import IterationTime
from repro.report.group import Group
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Relaxed iterations measured on shaped links"
COMMAND = "repro run experiment=relaxations"
PLACE = ("model", "network", "nodes")  # what an iteration shares with the dense one that it is compared with


def table(results: Results) -> list[Row]:
    """Returns one row for each network, number of nodes and algorithm, the fastest first.

    Compute is stated, or the median of all runs, or what was timed where messages were hidden behind it; dense's is the
    same in what a row is over dense. The other parts are those of the run in the middle of n. Algorithms that do not
    communicate in every step send nothing in the only one.
    """
    groups = results.groups("relaxations")
    measured = [(group, row) for group in groups for row in group.iteration_time if row["source"] == "measured"]
    dense = {
        _place(group, row): IterationTime.of(row)
        for group, row in measured
        if _label(group) == _draw.algo_name("dense")
    }
    rows = []
    for group, row in measured:
        time, exact = IterationTime.of(row), dense.get(_place(group, row))
        rows.append(
            {
                **dict(zip(PLACE, _place(group, row), strict=True)),
                "algorithm": _label(group),
                **{f"{name[:-2]} (ms)": 1e3 * seconds for name, seconds in time.row().items()},
                "iteration (ms)": 1e3 * time.total,
                "sent (MB)": (group.per_step.get("bytes_sent") or 0) / 1e6 or None,
                "headers (%)": _headers(group),
                "n": group.timed_n,
                "source": "measured",
                "over dense": time.speedup_over(exact) if exact else None,
            }
        )
    return sorted(rows, key=lambda row: (*(row[name] for name in PLACE), row["iteration (ms)"]))


def _place(group: Group, row: Row) -> tuple[str, str, int]:
    return _draw.model_name(group.model), title("network", row["network"]), group.nodes


def _headers(group: Group) -> float | None:
    """Returns by how many percent gloo's headers make the bytes more."""
    sent, at_socket = group.per_step.get("bytes_sent"), group.socket_bytes
    return 100 * (at_socket / sent - 1) if sent and at_socket else None


def _label(group: Group) -> str:
    beside = ", overlapped" if group.settings["overlap"] == "on" else ""
    return _draw.algo_name(group.algo + beside)
