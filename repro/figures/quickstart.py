"""Lists the results of the quickstart: three algorithms on scanned digits (not in the paper)."""

from repro.config import groups
from repro.figures._sent import SENT
from repro.iteration_time import PARTS
from repro.metric import ACCURACY
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Quickstart on scanned digits"
COMMAND = "repro run experiment=quickstart"


def table(results: Results) -> list[Row]:
    rows = []
    for group in results.groups("quickstart", ACCURACY):
        parts = group.time.parts() if group.time else dict.fromkeys(PARTS)
        rows.append(
            {
                "algorithm": groups.title("algo", group.algo),
                "nodes": group.nodes,
                "n": group.n,
                "test accuracy (%)": 100 * group.curve[-1]["test_accuracy"] if group.curve else None,
                SENT: group.per_step.get("bytes_sent"),
                **{f"{part[:-2]} (ms)": None if seconds is None else 1e3 * seconds for part, seconds in parts.items()},
            }
        )
    return rows
