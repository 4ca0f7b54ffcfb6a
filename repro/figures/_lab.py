"""Reads what the lab and the calibration measured, from the files that `repro bench` wrote."""

from repro.report.summaries import Results
from repro.tables import Row


def collectives(results: Results) -> list[Row]:
    """Returns the rows of `repro bench collectives`: algo, nodes, parameters, seconds (median) and its spread."""
    return list(results.summaries.get("lab/collectives", {}).get("rows", []))


def network(results: Results) -> Row:
    """Returns alpha_s, beta_s_per_byte and the points of `repro bench network`; empty if not run."""
    return results.summaries.get("lab/network", {})
