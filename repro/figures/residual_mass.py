"""Draws what the paper's residual rule loses in a step and exact accounting keeps, against P (not in the paper)."""

from matplotlib.figure import Figure

from repro.figures import _draw, _legend, _names
from repro.report.curves import mean_std
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Gradient mass lost by the paper's rule, and none by an exact butterfly"
COMMAND = "repro run experiment=residual_mass"
RULES = {"paper": "paper's rule"}


def table(results: Results) -> list[Row]:
    """Returns lost mass as a share of the mass that the ranks selected: mean and deviation over the recorded steps."""
    rows = []
    for group in results.groups("residual_mass"):
        recorded = [record for record in group.recorded if record["selected_mass"]]  # of no mass none is lost
        mean, std = mean_std(record["lost_mass"] / record["selected_mass"] for record in recorded)
        rows.append(
            {
                "source": "recorded",
                "model": group.model,
                "data": group.data,
                "algo": group.algo,
                "rule": group.settings["algo"]["options"].get("residual", "whole"),
                "nodes": group.nodes,
                "density": group.settings["density"],
                "precision": group.settings["precision"],
                "steps": len(recorded),
                "lost_share": mean,
                "lost_share_std": std,
            }
        )
    return sorted((row for row in rows if row["steps"]), key=lambda row: (row["algo"], row["nodes"]))


def draw(rows: list[Row]) -> Figure:
    figure, (panel,) = _draw.panels(1, height=2.0)
    for name, own in _names.lines(rows, "model", "data", "density", "precision").items():
        for place, rule in enumerate(dict.fromkeys(row["rule"] for row in own)):
            percent = [
                row | {key: None if row[key] is None else 100 * row[key] for key in ("lost_share", "lost_share_std")}
                for row in own
                if row["rule"] == rule
            ]
            changes = {"label": f"{name} ({RULES.get(rule, rule)})"} | ({"markerfacecolor": "white"} if place else {})
            _draw.line(panel, percent, "nodes", "lost_share", own[0]["algo"], **changes)
    _draw.nodes_axis(panel, (row["nodes"] for row in rows))
    panel.set_ylabel("lost in a step (% of selected mass)")
    panel.set_ylim(bottom=-0.5)
    _legend.of_panels(figure, [panel])
    settings = dict.fromkeys((row["model"], row["data"], row["density"], row["precision"]) for row in rows)
    on = (
        f"{_draw.model_name(model)} on {_draw.data_name(data)}, density {rho:g}, {precision}"
        for model, data, rho, precision in settings
    )
    steps = sorted({row["steps"] for row in rows})
    _legend.note(
        figure,
        f"{'; '.join(on)}, "
        f"mean and deviation over {' to '.join(map(str, dict.fromkeys((steps[0], steps[-1]))))} recorded steps of one "
        "run each. Lost: what the sum of all ranks' gradients and residuals had before the step, and neither the "
        "update nor a residual has after it; mass is a sum of magnitudes, selected that of all ranks' k entries.",
    )
    return figure
