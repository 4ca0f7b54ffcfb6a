"""Predictions with round numbers, as `repro map` and `repro simulate` write them."""

from typing import Any


def tradeoff() -> dict[str, Any]:
    """Two networks by two: gTop-k on the slower, dense on the faster; with latency, averages in the background."""
    grid = {"over_second": [[3, 1], [3, 1.5]], "over_dense": [[4, 1], [4, 1.5]], "over_exact": [[4, 1], [4, 1.5]]}
    return {
        "contenders": ["dense", "gtopk", "async_average"],
        "accuracy": [0.9, 0.8, 0.7],
        "on_map": [True, True, True],
        "bits_per_s": [1e8, 1e9],
        "alpha_s": [30e-6, 1e-3],
        "maps": [
            {"model": "resnet20", "nodes": 32, "relax": relax, "fastest": [[1, 0], [1, last]], **grid}
            for relax, last in (("compressed", 1), ("all", 2))
        ],
    }


def simulated(model: str, algo: str, nodes: int) -> dict[str, Any]:
    """gTop-k is 4 times as fast as dense and 1.5 times as Top-k."""
    total = {"dense": 0.8, "topk": 0.3, "gtopk": 0.2, "gtopk_butterfly": 0.1}[algo]
    parts = {"compute_s": 0.05, "compress_s": 0.01, "communicate_s": total - 0.06}
    return {"model": model, "algo": algo, "nodes": nodes, "source": "paper", **parts}
