"""Compares the planner's choice in the lab with the best of the candidates measured there (not in the paper)."""

from repro.figures import _draw
from repro.report import map_lines
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "The planner's choice against the best measured"
COMMAND = "repro bench regret"


def table(results: Results) -> list[Row]:
    """Returns one row for each model and bandwidth, then their mean and worst."""
    summary = results.summaries.get("regret", {})
    rows = [
        {
            "model": _draw.model_name(row["model"]),
            "nodes": row["nodes"],
            "bandwidth": map_lines.bandwidth(row["bits_per_s"]),
            "chosen": _draw.algo_name(row["choice"]),
            "predicted (ms)": 1e3 * row["predicted_s"][row["choice"]],
            "measured (ms)": 1e3 * row["choice_s"],
            "best measured": _draw.algo_name(row["best"]),
            "its (ms)": 1e3 * row["best_s"],
            "regret": row["regret"],
            "source": "measured",
        }
        for row in summary.get("rows", [])
    ]
    return rows + [{**dict.fromkeys(rows[0]), "model": f"{name} regret", "regret": summary[name],
                    "source": "measured"} for name in ("mean", "worst") if rows]  # fmt: skip
