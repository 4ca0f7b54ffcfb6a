"""Draws samples per second and node against the number of nodes."""

from matplotlib.figure import Figure

from repro.figures import _rates, _times
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Throughput per node"
COMMAND = "repro run experiment=dilated"
ALSO = (_times.SIMULATE,)


def table(results: Results) -> list[Row]:
    return _rates.table(results, "samples_per_s")


def draw(rows: list[Row]) -> Figure:
    return _rates.draw(rows, "samples_per_s", "samples/s per node", 1.0, COMMAND, log=True)
