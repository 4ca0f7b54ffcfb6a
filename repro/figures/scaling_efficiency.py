"""Draws throughput per node over that of a single node, against the number of nodes."""

from matplotlib.figure import Figure

from repro.figures import _rates, _times
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Scaling efficiency"
COMMAND = "repro run experiment=dilated"
ALSO = (_times.SIMULATE,)


def table(results: Results) -> list[Row]:
    return _rates.table(results, "efficiency")


def draw(rows: list[Row]) -> Figure:
    return _rates.draw(rows, "efficiency", "scaling efficiency (%)", 100.0, COMMAND, log=False)
