"""Reads what the lab and the calibration measured, from the files that `repro bench` wrote."""

from repro.report.summaries import Results
from repro.tables import Row

COLLECTIVES = (
    "repro bench collectives nodes=4,8,16,32 cluster.dilation=16 --parameters 270k,2.7M,25.6M "
    "--out results/lab/dilated/collectives.jsonl"
)


def collectives(results: Results) -> list[Row]:
    """Returns the rows of COLLECTIVES, measured with time dilated: algo, nodes, parameters, median seconds, spread."""
    return list(results.summaries.get("lab/dilated/collectives", {}).get("rows", []))


def network(results: Results) -> Row:
    """Returns alpha_s, beta_s_per_byte and the points of `repro bench network`; empty if not run."""
    return results.summaries.get("lab/network", {})
