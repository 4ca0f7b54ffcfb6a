"""Lists accuracies by where momentum comes, for each algorithm: the runs of the momentum figure (not in the paper)."""

from collections.abc import Iterable

from repro.figures import _curves, _draw, momentum
from repro.report.momentum import RULES
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Where momentum comes: accuracies of each algorithm in the first epochs"
COMMAND = momentum.COMMAND
ALSO = (_curves.CONVERGENCE,)
PANEL = ("nodes", "model", "data", "schedule", "epoch", "epochs averaged", "precision", "batch_per_node")


def table(results: Results) -> list[Row]:
    """Returns a row for each algorithm with one density in a panel of the figure, and a column for each rule.

    A cell has the mean over seeds in percent and, in brackets, their number; several where runs of that rule differ in
    more, as in whose weights decay; None where no run has it.
    """
    trained = [row for row in momentum.table(results) if row["source"] == "trained"]
    lines: dict[tuple[object, ...], list[Row]] = {}
    for row in trained:
        lines.setdefault((*(row[name] for name in PANEL), row["algo"], row["density"]), []).append(row)
    return [_row(of_line) for of_line in lines.values()]


def _row(rows: list[Row]) -> Row:
    first = rows[0]
    last, over = first["epoch"], first["epochs averaged"]
    return {
        "nodes": first["nodes"],
        "epochs": f"{last:.3g}" if over == 1 else f"mean of {last - over + 1:g} to {last:g}",
        "algorithm": first["algo"],
        "density": first["density"],
        **{f"{rule}, % (n)": _cell(row for row in rows if row["rule"] == rule) for rule in RULES},
        "schedule": first["schedule"],
        "model": _draw.model_name(first["model"]),
        "data": _draw.data_name(first["data"]),
        "batch_per_node": first["batch_per_node"],
        "source": "trained, " + first["precision"],
    }


def _cell(rows: Iterable[Row]) -> str | None:
    return "; ".join(f"{100 * row['test_accuracy']:.1f} ({row['n']})" for row in rows) or None
