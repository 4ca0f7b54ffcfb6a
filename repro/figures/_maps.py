"""Reads the fastest algorithm on each network of a grid, as `repro map` has predicted it."""

from repro.report.summaries import Results
from repro.tables import Row

COMMAND = "repro map experiment=tradeoff"
NODES = 32


def cells(results: Results, nodes: int) -> list[Row]:
    """Returns one row for each cell of the maps of so many nodes."""
    summary = results.summaries.get("tradeoff", {})
    below = summary.get("below_dense", {}).get(str(nodes))  # an older file does not say it, nor options
    options = summary.get("options") or [{} for _ in summary.get("contenders", [])]
    return [
        {
            "source": "simulated",
            "model": one["model"],
            "nodes": one["nodes"],
            "density": summary.get("density"),
            "node": summary.get("node"),
            "relax": one["relax"],
            "alpha_s": alpha,
            "bits_per_s": bits,
            "fastest": summary["contenders"][one["fastest"][y][x]],
            "its options": ", ".join(f"{name} {value}" for name, value in options[one["fastest"][y][x]].items()),
            "below dense (points)": below and below[one["fastest"][y][x]],
            **{name: one[name][y][x] for name in ("over_second", "over_dense", "over_exact")},
            "over_before": one["over_before"][y][x] if "over_before" in one else None,  # an older file
        }
        for one in summary.get("maps", [])
        if one["nodes"] == nodes
        for y, alpha in enumerate(summary["alpha_s"])
        for x, bits in enumerate(summary["bits_per_s"])
    ]
