"""Makes the columns on what a run sent in a step; they are the same in several tables."""

from collections.abc import Sequence

from repro.report.group import Group
from repro.tables import Row, for_people

SENT = "bytes per node and step"
IF_KNOWN = ("range over steps", "mean of the nodes", "busiest node")  # of runs since these were counted


def columns(group: Group) -> Row:
    """Returns rank 0's bytes in a step, their range, those of the mean and the busiest rank, and with headers."""
    counted = group.per_step
    least, most = (counted.get(f"bytes_sent_{end}") for end in ("least", "most"))
    return {
        SENT: counted.get("bytes_sent"),
        "range over steps": None if least is None else f"{for_people(least)} to {for_people(most)}",
        "mean of the nodes": counted.get("bytes_sent_mean_rank"),
        "busiest node": counted.get("bytes_sent_worst_rank"),
        "at the socket": group.socket_bytes,
    }


def known(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows without the columns of IF_KNOWN that none of them has."""
    unknown = {name for name in IF_KNOWN if all(row[name] is None for row in rows)}
    return [{name: cell for name, cell in row.items() if name not in unknown} for row in rows]
