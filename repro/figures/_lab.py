"""What the lab and the calibration measured, from the files that `repro bench` wrote."""

from repro.results import Results
from repro.tables import Row


def collectives(results: Results) -> list[Row]:
    """algo, nodes, parameters, seconds (median) and its spread, of `repro bench collectives`."""
    return list(results.summaries.get("lab/collectives", {}).get("rows", []))


def network(results: Results) -> Row:
    """`repro bench network`: alpha_s, beta_s_per_byte and the measured points; empty if not run."""
    return results.summaries.get("lab/network", {})
