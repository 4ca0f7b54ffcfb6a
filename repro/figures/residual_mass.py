"""What the paper's residual rule loses in a step and exact accounting keeps, against the number of nodes
(not in the paper)."""

from matplotlib.figure import Figure

from repro.figures import _draw
from repro.results import Results, mean_std
from repro.tables import Row

TITLE = "Gradient mass lost by the residual rules"
COMMAND = "repro run experiment=residual_mass"


def table(results: Results) -> list[Row]:
    """Lost mass as a share of the mass that the ranks selected; mean and deviation over the recorded steps."""
    rows = []
    for group in results.groups("residual_mass"):
        mean, std = mean_std(record["lost_mass"] / record["selected_mass"] for record in group.recorded)
        rows.append(
            {
                "source": "recorded",
                "model": group.model,
                "data": group.data,
                "algo": group.algo,
                "rule": group.settings["algo"]["options"].get("residual", "whole"),
                "nodes": group.nodes,
                "density": group.settings["density"],
                "steps": len(group.recorded),
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
        _draw.line(panel, percent, "nodes", "lost_share", algo, label=f"{_draw.look(algo).label} ({rule})")
    _draw.nodes_axis(panel, (row["nodes"] for row in rows))
    panel.set_ylabel("lost in a step (% of selected mass)")
    panel.set_ylim(bottom=-0.5)
    _draw.legend(figure, [panel], 2)
    first = rows[0]
    _draw.note(
        figure,
        f"{_draw.model_name(first['model'])} on {first['data']}, density {first['density']:g}, mean and "
        f"deviation over "
        f"{first['steps']} recorded steps. Lost: in the sum of all gradients and residuals before the "
        f"step, but neither in the "
        "update nor in a residual after it.",
    )
    return figure
