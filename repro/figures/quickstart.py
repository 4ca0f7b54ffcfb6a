"""The quickstart's table: three algorithms on scanned digits (not in the paper)."""

from repro.results import PARTS, Results
from repro.tables import Row

TITLE = "Quickstart on scanned digits"
COMMAND = "repro run experiment=quickstart"


def table(results: Results) -> list[Row]:
    rows = []
    for group in results.groups("quickstart"):
        time: Row = group.time or dict.fromkeys(PARTS)
        rows.append(
            {
                "algorithm": group.algo,
                "nodes": group.nodes,
                "n": group.n,
                "test accuracy (%)": 100 * group.curve[-1]["test_accuracy"],
                "bytes per node and step": group.per_step["bytes_sent"],
                **{f"{part[:-2]} (ms)": 1e3 * time[part] if group.time else None for part in PARTS},
            }
        )
    return rows
