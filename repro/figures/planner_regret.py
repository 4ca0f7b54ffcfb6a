"""What the planner's choice takes in the lab, over the best of the candidates measured there (not in the paper)."""

from repro.figures import _draw, _maps
from repro.results import Results
from repro.tables import Row

TITLE = "The planner's choice against the best measured"
COMMAND = "repro bench regret"


def table(results: Results) -> list[Row]:
    """One row for each model and bandwidth, then their mean and worst."""
    found = results.summaries.get("regret", {})
    rows = [
        {
            "network": _draw.model_name(row["model"]),
            "nodes": row["nodes"],
            "bandwidth": _maps.bandwidth(row["bits_per_s"]),
            "chosen": row["choice"],
            "predicted (ms)": 1e3 * row["predicted_s"][row["choice"]],
            "measured (ms)": 1e3 * row["choice_s"],
            "best measured": row["best"],
            "its (ms)": 1e3 * row["best_s"],
            "regret": row["regret"],
            "source": "measured",
        }
        for row in found.get("rows", [])
    ]
    return rows + [{**dict.fromkeys(rows[0]), "network": f"{name} regret", "regret": found[name], "source": "measured"}
                   for name in ("mean", "worst") if rows]  # fmt: skip
