"""Draws training loss and test perplexity of a small LSTM by epochs, for each algorithm (the paper has its speed)."""

from matplotlib.figure import Figure

from repro.figures import _curves, _draw, _legend
from repro.metric import PERPLEXITY
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "First epochs of a small LSTM on real text"
COMMAND = "repro run experiment=language"


def table(results: Results) -> list[Row]:
    return _curves.rows(results, "language", PERPLEXITY)


def draw(rows: list[Row]) -> Figure:
    figure = _curves.draw(rows)
    densities = sorted({row["density"] for row in rows if row["density"] < 1})
    sparse = f"Density of the sparse ones: {', '.join(f'{density:g}' for density in densities)}." if densities else ""
    _legend.note(figure, *_draw.runs_note(rows), _draw.bands_note(figure), sparse)
    return figure
