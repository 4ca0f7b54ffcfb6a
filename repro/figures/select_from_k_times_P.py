"""Draws the paper's first experiment: of the k x P entries that Top-k sums, k are enough."""

from matplotlib.figure import Figure

from repro.figures import _curves, _draw, _legend
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Choosing k of the k × P gathered entries"
COMMAND = "repro run experiment=select_from_k_times_P"
ALSO = (_curves.CONVERGENCE,)


def table(results: Results) -> list[Row]:
    return _curves.rows(results, "select_from_k_times_P")


def draw(rows: list[Row]) -> Figure:
    figure = _curves.draw(rows, against_time=False)
    _legend.note(figure, *_draw.runs_note(rows), _draw.bands_note(figure), _curves.cut_note(rows))
    return figure
