"""Collects the seconds of one iteration, split in three, from every source: published, simulated, and runs of ours."""

from repro.figures import _draw
from repro.iteration_time import DILATED, FIELDS, IterationTime, is_dilated
from repro.report.summaries import Results
from repro.tables import Row

NODES = (4, 8, 16, 32)
PUBLISHED_ON = "ethernet1g"
SIMULATE = f"repro simulate model={','.join(_draw.PAPER)} nodes=4,8,16,32 --out results/summaries/simulate.json"


def simulated(results: Results) -> list[Row]:
    """Returns `repro simulate` of published compute and compress, and our messages on the published alpha and beta."""
    summary = results.summaries.get("simulate", {})
    return [
        _row(
            row["model"],
            row["algo"],
            row["nodes"],
            "simulated",
            summary["network"]["name"],
            results.paper["breakdown_gtopk_32_nodes"][row["model"]]["batch_per_node"],
            IterationTime.of(row),
        )
        for row in summary.get("rows", [])
        if row["source"] == "paper" and row["compress_s"] is not None
    ]


def of_experiment(results: Results, experiment: str) -> list[Row]:
    """Returns every iteration time that its finished runs have reported, measured and modelled kept apart."""
    rows = []
    for group in results.groups(experiment):
        batch = group.settings["batch_per_node"] * group.settings["accumulate"]
        for row in group.iteration_time:
            same = (group.model, group.algo, group.nodes, row["source"], row["network"], batch)
            rows.append(_row(*same, IterationTime.of(row)))
    return rows


def ours(results: Results) -> list[Row]:
    """Returns the times of `experiment=throughput`, and those measured in the lab."""
    measured = [row for row in of_experiment(results, "lab") if row["source"] == "measured"]
    return of_experiment(results, "throughput") + measured


def dilated(results: Results) -> list[Row]:
    """Returns the iterations of `experiment=dilated`: their source is DILATED, and `dilation` says by how much."""
    rows = []
    for group in results.groups("dilated"):
        batch = group.settings["batch_per_node"] * group.settings["accumulate"]
        modelled = [IterationTime.of(row).total for row in group.iteration_time if row["source"] == "modelled"]
        for row in (row for row in group.iteration_time if is_dilated(row["source"])):
            same = (group.model, group.algo, group.nodes, DILATED, row["network"], batch)
            rows.append(
                _row(*same, IterationTime.of(row))
                | {name: row[name] for name in ("node", "dilation", "repeats", "iterations_s")}
                | {"overlap": group.settings["overlap"], "modelled_s": modelled[0] if modelled else None}
            )
    order = _draw.models_of(rows)
    return sorted(rows, key=lambda row: (order.index(row["model"]), row["node"], row["nodes"]))


def on_the_papers_node(results: Results) -> list[Row]:
    """Returns those of `dilated` with the published compute and compress, without overlap: what the paper timed."""
    return [row for row in dilated(results) if (row["node"], row["overlap"]) == ("paper", "off")]


def _row(model: str, algo: str, nodes: int, source: str, wire: str, batch: int, time: IterationTime) -> Row:
    return {
        "model": model,
        "algo": algo,
        "nodes": nodes,
        "source": source,
        "network": wire,
        "batch_per_node": batch,
        **time.row(),
        "samples_per_s": batch / time.total,
        "efficiency": time.compute_s / time.total,
    }


def published(results: Results) -> list[Row]:
    """Returns throughput per node, and efficiency against the published single node, from the authors' script."""
    rows = []
    for model in _draw.PAPER:
        by_algo = results.paper["throughput_per_node"][model]
        for algo in ("dense", "topk", "gtopk"):
            for nodes, rate in by_algo[algo].items():
                rows.append(
                    {
                        "model": model,
                        "algo": algo,
                        "nodes": nodes,
                        "source": "published",
                        "network": PUBLISHED_ON,
                        "batch_per_node": None,
                        **dict.fromkeys(FIELDS),
                        "samples_per_s": rate,
                        "efficiency": rate / by_algo["single"],
                    }
                )
    return rows
