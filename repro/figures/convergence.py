"""Training loss and test accuracy of each algorithm against epochs, and against time on the chosen
network."""

from matplotlib.figure import Figure

from repro.figures import _curves, _draw
from repro.results import Results
from repro.tables import Row

TITLE = "Convergence of dense, Top-k and gTop-k S-SGD"
COMMAND = "repro run experiment=convergence"
MODELS = ("resnet20", "vgg16", "alexnet", "resnet50")


def table(results: Results) -> list[Row]:
    return _curves.rows(results, "convergence")


def draw(rows: list[Row]) -> Figure:
    figure = _curves.draw(rows)
    _draw.note(figure, *_draw.runs_note(rows), _curves.time_note(rows), _curves.missing(rows, MODELS, COMMAND))
    return figure
