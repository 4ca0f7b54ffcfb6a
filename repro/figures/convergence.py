"""Draws training loss and test accuracy of each algorithm against epochs, and against time on the paper's nodes."""

from matplotlib.figure import Figure

from repro.figures import _curves, _draw, _legend, _shown
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Convergence of S-SGD: training loss and test accuracy"
COMMAND = _curves.CONVERGENCE
WIDTH = "double"


def table(results: Results) -> list[Row]:
    groups = _shown.of_one_schedule(results.groups("convergence"))
    ours = [row for group in groups for row in _curves.of_group(group)]
    rows = [row | {"beside": None, "published_s": _published_s(results, row)} for row in ours]
    return rows + [row | {"published_s": None} for row in _curves.of_reference(results, groups)]


def _published_s(results: Results, row: Row) -> float | None:
    """Returns the seconds in which the authors' nodes process as many samples, by the throughput in their script."""
    rates = results.paper["throughput_per_node"].get(row["model"], {}).get(row["algo"], {})
    return row["step"] * row["batch_per_node"] / rates[row["nodes"]] if row["nodes"] in rates else None


def draw(rows: list[Row]) -> Figure:
    figure = _curves.draw(rows)
    timed = [row for row in rows if row["published_s"] is not None]
    time = (
        "Minutes: as many samples at the throughput in the authors' script, timed at batch 128 per node. With smaller "
        "batches a sample needs more exchanges, so that the minutes are too few, most of all for dense. An algorithm "
        "without a published throughput has no such curve."
    )
    ticks = "Ticks under curves over minutes: the learning rate × 0.1, after as many epochs as at the dotted lines."
    _legend.note(
        figure,
        *_draw.runs_note(rows),
        _draw.bands_note(figure),
        _curves.reference_note(rows),
        time if timed else "",
        ticks if any(row["drops"] for row in timed) else "",
        _curves.cut_note(rows),
        _curves.missing(rows, _draw.IMAGES, "convergence"),
    )
    return figure
