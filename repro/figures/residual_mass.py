"""Draws what the paper's residual rule loses in a step and exact accounting keeps, against P (not in the paper)."""

from matplotlib.figure import Figure

from repro.figures import _draw, _legend
from repro.report.curves import mean_std
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "Gradient mass lost by the residual rules"
COMMAND = "repro run experiment=residual_mass"


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
                "steps": len(recorded),
                "lost_share": mean,
                "lost_share_std": std,
            }
        )
    return sorted((row for row in rows if row["steps"]), key=lambda row: (row["algo"], row["nodes"]))


def draw(rows: list[Row]) -> Figure:
    figure, (panel,) = _draw.panels(1, height=2.0)
    for algo in _draw.algos_of(rows):
        mine = [row for row in rows if row["algo"] == algo]
        percent = [
            row | {name: None if row[name] is None else 100 * row[name] for name in ("lost_share", "lost_share_std")}
            for row in mine
        ]
        rule = {"paper": "paper's rule", "exact": "exact"}.get(mine[0]["rule"], mine[0]["rule"])
        _draw.line(panel, percent, "nodes", "lost_share", algo, label=f"{_draw.algo_name(algo)} ({rule})")
    _draw.nodes_axis(panel, (row["nodes"] for row in rows))
    panel.set_ylabel("lost in a step (% of selected mass)")
    panel.set_ylim(bottom=-0.5)
    _legend.of_panels(figure, [panel])
    first = rows[0]
    _legend.note(
        figure,
        f"{_draw.model_name(first['model'])} on {_draw.data_name(first['data'])}, density {first['density']:g}, "
        f"mean and deviation over {first['steps']} recorded steps of one run each. Lost: in the sum of all gradients "
        "and residuals before the step, but neither in the update nor in a residual after it.",
    )
    return figure
