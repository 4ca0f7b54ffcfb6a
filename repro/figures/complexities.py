"""Messages and bytes of each algorithm, its cost formula, and the formula's value on the authors' network."""

import math

from repro.figures import _times
from repro.results import Results
from repro.tables import Row

TITLE = "I. Complexity and cost of one aggregation"
COMMAND = "repro plot tables --only complexities"
NODES, MODEL = 32, "resnet50"
ALGOS = {  # name, complexity, key of the published formula
    "dense": ("dense (ring)", "O(m)", "dense_ring"),
    "topk": ("Top-k (all-gather)", "O(kP)", "topk_allgather"),
    "gtopk": ("gTop-k (tree + broadcast)", "O(k log P)", "gtopk_tree_and_broadcast"),
    "gtopk_butterfly": ("gTop-k (butterfly)", "O(k log P)", "gtopk_butterfly"),
}


def table(results: Results) -> list[Row]:
    m = results.paper["models"][MODEL]["parameters"]
    k = max(1, math.floor(results.paper["training"]["density"] * m))
    return [
        {
            "algorithm": label,
            "complexity": complexity,
            "cost": _symbols(results.paper["costs"][key]["formula"]),
            "evidence": results.paper["costs"][key]["evidence"],
            f"ms at P = {NODES}, m = {m:,}, k = {k:,}": 1e3 * _times.communicate(results, algo, NODES, m),
        }
        for algo, (label, complexity, key) in ALGOS.items()
    ]


def _symbols(formula: str) -> str:
    return formula.replace("alpha", "α").replace(" b", " β")
