"""Final test accuracy against the batch per node: the number of samples is the same, so a larger batch
takes fewer steps."""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from repro.figures import _curves, _draw
from repro.results import Results
from repro.tables import Row

TITLE = "Sensitivity to the batch size"
COMMAND = "repro run experiment=batch_sensitivity"


def table(results: Results) -> list[Row]:
    """The last evaluation of each run."""
    groups = _curves.of_one_schedule(results.groups("batch_sensitivity"))
    rows = [_curves.of_group(group)[-1] for group in groups if group.curve]
    return sorted(rows, key=lambda row: (row["model"], row["algo"], row["batch_per_node"]))


def draw(rows: list[Row]) -> Figure:
    figure, (panel,) = _draw.panels(1, height=2.0)
    scaled = [
        row | {name: None if row[name] is None else 100 * row[name] for name in ("test_accuracy", "test_accuracy_std")}
        for row in rows
    ]
    for algo in _draw.algos_of(rows):
        _draw.line(panel, [row for row in scaled if row["algo"] == algo], "batch_per_node", "test_accuracy", algo)
    panel.set_xscale("log", base=2)
    panel.set_xticks(sorted({row["batch_per_node"] for row in rows}))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.minorticks_off()
    panel.set_xlabel("batch per node")
    panel.set_ylabel("final test accuracy (%)")
    _draw.legend(figure, [panel])
    batches = f"Batches {', '.join(str(b) for b in sorted({row['batch_per_node'] for row in rows}))} per node."
    _draw.note(
        figure,
        batches,
        *[text.replace(f", batch {rows[0]['batch_per_node']} per node", "") for text in _draw.runs_note(rows)],
    )
    return figure
