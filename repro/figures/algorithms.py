"""Every algorithm: what it does to the gradient, what it sends, what it remembers, and where it comes from."""

import ast
from pathlib import Path

from repro import choices
from repro.results import Results
from repro.tables import Row

TITLE = "The algorithms"
COMMAND = "repro simulate algo=all model=resnet50 nodes=32 node=paper --out results/summaries/algorithms.json"
CODE = Path(__file__).parent.parent / "algorithms"


def table(results: Results) -> list[Row]:
    """One row for each algorithm that was simulated, grouped by family."""
    about = {row["algo"]: choices.about(row["algo"]) for row in rows(results)}
    return [
        {
            "algorithm": row["algo"],
            "family": about[row["algo"]]["family"],
            f"bytes per node and step at P = {row['nodes']}, m = {row['parameters']:,}": row["bytes_sent_most"],
            "rounds": row["rounds_most"],
            "of P nodes": formula(about[row["algo"]].get("file") or row["algo"]),
            "error feedback": about[row["algo"]]["error_feedback"],
            "by": about[row["algo"]]["source"],
            "command": f"repro run algo={row['algo']}",
        }
        for row in sorted(rows(results), key=lambda row: (about[row["algo"]]["family"], row["algo"]))
    ]


def rows(results: Results) -> list[Row]:
    return results.summaries.get("algorithms", {}).get("rows", [])


def formula(module: str) -> str | None:
    """What the algorithm's `cost` says it computes; read, not imported, as that would import torch."""
    for node in ast.parse((CODE / f"{module}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == "cost":
            return " ".join((ast.get_docstring(node) or "").split()).rstrip(".")
    return None
