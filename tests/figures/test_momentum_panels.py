"""Accuracies are compared among runs of one number of nodes, each at the last epoch that all of them have."""

import made_up_groups
import made_up_results

from repro.figures import momentum
from repro.report.summaries import Results


def test_longer_runs_on_more_nodes_keep_their_own_epoch() -> None:
    short = [made_up_groups.group("resnet20", algo, nodes=4) for algo in ("dense", "gtopk")]
    for group in short:
        group["curve"] = group["curve"][:2]
        group["settings"]["epochs"] = 2
    long = [made_up_groups.group("resnet20", algo, nodes=32) for algo in ("dense", "gtopk")]
    limits = [{"rule": rule, "density": rho, "limits": [rho]} for rule in momentum.RULES for rho in (0.01, 1.0)]
    summaries = {"momentum": {"groups": short + long}, "quadratic": {"rows": limits}}
    rows = momentum.table(Results({}, summaries, made_up_results.REFERENCE))
    assert [(row["nodes"], row["epoch"], row["algo"]) for row in rows if row["source"] == "trained"] == [
        (4, 2, "dense"),
        (4, 2, "gTop-k"),
        (32, 5, "dense"),
        (32, 5, "gTop-k"),
    ]
    panels = {axes.get_title(): axes.get_xlabel() for axes in momentum.draw(rows).axes}
    assert panels["P = 4"] == "test accuracy after 2 epochs (%)"
    assert panels["P = 32"] == "test accuracy after 5 epochs (%)"
