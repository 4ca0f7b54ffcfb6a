"""Lists each algorithm's messages and bytes, its cost formula, and the formula's value on the authors' network."""

from repro.comm.cost_formulas import FORMS, closed_form
from repro.comm.traffic import Link
from repro.config.groups import title
from repro.density import entries
from repro.report.summaries import Results
from repro.tables import Row

TITLE = "I. Complexity and cost of one aggregation"
COMMAND = "repro plot tables --only complexities"
NODES, MODEL = 32, "resnet50"
ALGOS = {  # how it communicates, and its complexity
    "dense": (" (ring)", "O(m)"),
    "topk": (" (all-gather)", "O(kP)"),
    "gtopk": (" (tree + broadcast)", "O(k log P)"),
    "gtopk_butterfly": ("", "O(k log P)"),
}


def table(results: Results) -> list[Row]:
    m = results.paper["models"][MODEL]["parameters"]
    k = entries(results.paper["training"]["density"], m)
    link = Link(results.paper["network"]["alpha_s"], results.paper["network"]["beta_s_per_byte"])
    rows = []
    for algo, (how, complexity) in ALGOS.items():
        published = results.paper["costs"][FORMS[algo].__name__]
        rows.append(
            {
                "algorithm": title("algo", algo + how),
                "complexity": complexity,
                "cost": _symbols(published["formula"]),
                "evidence": published["evidence"],
                f"ms at P = {NODES}, m = {m:,}, k = {k:,}": 1e3 * closed_form(algo, NODES, m, k, link),
            }
        )
    return rows


def _symbols(formula: str) -> str:
    return formula.replace("alpha", "α").replace(" b", " β")
