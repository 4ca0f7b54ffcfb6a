"""Lists every algorithm: what it does to the gradient, what it sends, what it remembers, and where it comes from."""

from repro.config import groups
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "The algorithms"
COMMAND = "repro simulate algo=all model=resnet50 nodes=32 node=paper --out results/summaries/algorithms.json"


def table(results: Results) -> list[Row]:
    """Returns one row for each algorithm that was simulated, grouped by family."""
    about = {row["algo"]: groups.about(row["algo"]) for row in rows(results)}
    return [
        {
            "algorithm": groups.title("algo", row["algo"]),
            "family": about[row["algo"]]["family"],
            f"bytes per node and step at P = {row['nodes']}, m = {row['parameters']:,}": row["bytes_sent_most"],
            "mean of the nodes": row.get("bytes_sent_mean"),
            "busiest at the socket": row.get("socket_bytes_most"),
            "rounds": row["rounds_most"],
            "of P nodes": cost(row["algo"]),
            "error feedback": about[row["algo"]]["error_feedback"],
            "by": about[row["algo"]]["source"],
            "command": f"repro run algo={row['algo']}",
        }
        for row in sorted(rows(results), key=lambda row: (about[row["algo"]]["family"], row["algo"]))
    ]


def rows(results: Results) -> list[Row]:
    return results.summaries.get("algorithms", {}).get("rows", [])


def cost(algo: str) -> str | None:
    """Returns in words what the algorithm's `cost` computes; the choices that share its file share them."""
    module = groups.about(algo).get("file") or algo
    return groups.about(module).get("cost")
