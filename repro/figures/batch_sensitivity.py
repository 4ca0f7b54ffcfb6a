"""Draws final test accuracy against batch per node: a larger batch takes fewer steps over as many samples."""

from matplotlib.figure import Figure

from repro.figures import _curves, _draw, _legend, _names, _shown
from repro.metric import ACCURACY
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Sensitivity to the batch size"
COMMAND = "repro run experiment=batch_sensitivity"


def table(results: Results) -> list[Row]:
    """Returns the last evaluation of each run."""
    groups = _shown.of_one_schedule(results.groups("batch_sensitivity", ACCURACY))
    rows = [_curves.of_group(group)[-1] for group in groups if group.curve]
    return sorted(rows, key=lambda row: (row["model"], row["algo"], row["batch_per_node"]))


def draw(rows: list[Row]) -> Figure:
    figure, (panel,) = _draw.panels(1, height=2.0)
    scaled = [
        row | {name: None if row[name] is None else 100 * row[name] for name in ("test_accuracy", "test_accuracy_std")}
        for row in rows
    ]
    for name, own in _names.lines(scaled, "model", "density", "nodes", "data", "precision").items():
        _draw.line(panel, own, "batch_per_node", "test_accuracy", own[0]["algo"], label=name)
    panel.set_xscale("log", base=2)
    steps: dict[int, set[int]] = {}
    for row in rows:
        steps.setdefault(row["batch_per_node"], set()).add(row["step"])
    said = {batch: f"\n{min(own):,} steps" if len(own) == 1 else "" for batch, own in steps.items()}
    panel.set_xticks(sorted(steps), [f"{batch:g}{said[batch]}" for batch in sorted(steps)])
    panel.xaxis.minorticks_off()
    panel.set_xlabel("batch per node, and steps of the run")
    panel.set_ylabel("final test accuracy (%)")
    _legend.of_panels(figure, [panel])
    _legend.note(figure, _fewer_steps(rows), *_draw.runs_note(rows, batch=False), _draw.bands_note(figure))
    return figure


def _fewer_steps(rows: list[Row]) -> str:
    """Says why a larger batch ends lower here, so that nobody takes it for an effect of the batch alone."""
    least, most = (pick(rows, key=lambda row: row["batch_per_node"]) for pick in (min, max))
    if least is most or least["step"] <= most["step"]:
        return ""
    so = ". Accuracy falls here, and whether by the batch or by the fewer steps is not told apart"
    return (
        "All runs see nearly the same number of samples, so that a larger batch takes fewer steps: "
        f"{least['step']:,} at batch {least['batch_per_node']}, {most['step']:,} at {most['batch_per_node']}. A step "
        f"moves the weights once, a sparse step only k of them{so if _falls(rows) else ''}."
    )


def _falls(rows: list[Row]) -> bool:
    """Returns whether each algorithm ends lower with its largest batch than with its smallest."""
    by_algo: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["batch_per_node"]):
        by_algo.setdefault(row["algo"], []).append(row)
    return all(own[-1]["test_accuracy"] < own[0]["test_accuracy"] for own in by_algo.values() if len(own) > 1)
