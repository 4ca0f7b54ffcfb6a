"""Predictions with round numbers, as `repro map` and `repro simulate` write them."""

from typing import Any

import torch

from repro.config.compose import compose
from repro.timing import node_profile, predict


def tradeoff() -> dict[str, Any]:
    """Two networks by two: gTop-k on the slower, dense on the faster; with latency, averages in the background."""
    grid = {"over_second": [[3, 1], [3, 1.5]], "over_dense": [[4, 1], [4, 1.5]], "over_exact": [[4, 1], [4, 1.5]]}
    grid["over_before"] = [[1, 1.01], [1, 1.5]]
    return {
        "node": "paper",
        "density": 0.001,
        "machine": {},
        "networks": [],
        "rows": [],
        "contenders": ["dense", "gtopk", "async_average"],
        "below_dense": {"32": [None, 0.5, 0.7]},
        "on_map": {"32": [True, True, True]},
        "bits_per_s": [1e8, 1e9],
        "alpha_s": [30e-6, 1e-3],
        "maps": [
            {"model": "resnet20", "nodes": 32, "relax": relax, "fastest": [[1, 0], [1, last]], **grid}
            for relax, last in (("compressed", 1), ("all", 2))
        ],
    }


def divided() -> dict[str, Any]:
    """A pipeline of two stages beside data parallelism is the fastest on 1 Gbps, gTop-k on 100 Gbps."""
    rates = {
        ("dense", 1, "synchronous"): 1.0, ("gtopk", 1, "synchronous"): 3.0, ("dense", 1, "overlapped"): 1.5,
        ("dense", 1, "accumulated"): 2.0, ("async_average", 1, "asynchronous"): 9.0, ("dense", 4, "synchronous"): 0.5,
        ("gtopk", 2, "synchronous"): 2.5, ("dense", 2, "synchronous"): 4.0,
    }  # fmt: skip
    rows = [
        {"model": "resnet20", "nodes": nodes, "stages": stages, "algo": algo, "kind": kind, "images": 512,
         "network": network, "iteration_s": 512 / rate, "images_per_s": rate, "bytes_most": 1000, "memory": 10**6}
        for (algo, stages, kind), known in rates.items()
        for nodes in (4, 8)
        for network in ("ethernet1g", "infiniband100g")
        for rate in [known if network == "ethernet1g" or (algo, stages) != ("dense", 2) else 1.2]
    ]  # fmt: skip
    return {"node": "paper", "rows": rows}


def simulated(model: str, algo: str, nodes: int) -> dict[str, Any]:
    """gTop-k is 4 times as fast as dense and 1.5 times as Top-k."""
    total = {"dense": 0.8, "topk": 0.3, "gtopk": 0.2, "gtopk_butterfly": 0.1}[algo]
    parts = {"compute_s": 0.05, "compress_s": 0.01, "communicate_s": total - 0.06}
    return {"model": model, "algo": algo, "nodes": nodes, "source": "paper", **parts}


def predicted(*overrides: str) -> predict.Iteration:
    (config,) = compose(["model=resnet20", *overrides])
    shapes = node_profile.layers(config)
    moments = torch.linspace(0.2, 0.1, len(shapes)).tolist()  # the last layer's gradient comes first
    return predict.iteration(config, shapes, moments, 0.01)
