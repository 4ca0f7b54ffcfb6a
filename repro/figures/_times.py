"""Seconds of one iteration, split in three, from every source: published, simulated, and runs of ours."""

from repro import network
from repro.results import PARTS, Results
from repro.tables import Row

NODES = (4, 8, 16, 32)
MODELS = ("resnet20", "vgg16", "alexnet", "resnet50")
SIMULATE = "repro simulate model=resnet20,vgg16,alexnet,resnet50 nodes=4,8,16,32 --out results/summaries/simulate.json"


def communicate(results: Results, algo: str, nodes: int, parameters: int) -> float:
    """Seconds of one aggregation by the paper's cost formula, alpha and beta."""
    wire = results.paper["network"]
    link = network.Link(wire["alpha_s"], wire["beta_s_per_byte"])
    if algo == "dense":
        return network.dense_ring(nodes, parameters, link)
    k = max(1, int(results.paper["training"]["density"] * parameters))
    form = {
        "topk": network.topk_allgather,
        "gtopk": network.gtopk_tree_and_broadcast,
        "gtopk_butterfly": network.gtopk_butterfly,
    }
    return form[algo](nodes, k, link)


def simulated(results: Results) -> list[Row]:
    """`repro simulate` with the published node: published compute and compress, and the messages of our
    algorithms on the published alpha and beta."""
    found = results.summaries.get("simulate", {})
    return [
        _row(
            row["model"],
            row["algo"],
            row["nodes"],
            "simulated",
            found["network"]["name"],
            results.paper["breakdown_gtopk_32_nodes"][row["model"]]["batch_per_node"],
            *(row[part] for part in PARTS),
        )
        for row in found.get("rows", [])
        if row["source"] == "paper"
    ]


def of_experiment(results: Results, experiment: str) -> list[Row]:
    """Every iteration time that its finished runs have reported, measured and modelled kept apart."""
    rows = []
    for group in results.groups(experiment):
        batch = group.settings["batch_per_node"] * group.settings["accumulate"]
        for time in group.iteration_time:
            same = (group.model, group.algo, group.nodes, time["source"], time["network"], batch)
            rows.append(_row(*same, *(time[part] for part in PARTS)))
    return rows


def ours(results: Results) -> list[Row]:
    """Those of `experiment=throughput`, and what the lab measured."""
    measured = [row for row in of_experiment(results, "lab") if row["source"] == "measured"]
    return of_experiment(results, "throughput") + measured


def _row(model: str, algo: str, nodes: int, source: str, wire: str, batch: int, *parts: float) -> Row:
    return {
        "model": model,
        "algo": algo,
        "nodes": nodes,
        "source": source,
        "network": wire,
        "batch_per_node": batch,
        **dict(zip(PARTS, parts, strict=True)),
        "samples_per_s": batch / sum(parts),
        "efficiency": parts[0] / sum(parts),
    }


def published(results: Results) -> list[Row]:
    """Throughput per node and efficiency against the published single node, from the authors' script."""
    rows = []
    for model in MODELS:
        by_algo = results.paper["throughput_per_node"][model]
        for algo in ("dense", "topk", "gtopk"):
            for nodes, rate in by_algo[algo].items():
                rows.append(
                    {
                        "model": model,
                        "algo": algo,
                        "nodes": nodes,
                        "source": "published",
                        "network": "ethernet1g",
                        "batch_per_node": None,
                        **dict.fromkeys(PARTS),
                        "samples_per_s": rate,
                        "efficiency": rate / by_algo["single"],
                    }
                )
    return rows
