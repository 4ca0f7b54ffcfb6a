"""Made-up results, for tests alone: every figure and table gets something to draw, with numbers that are
easy to check."""

from __future__ import annotations

import itertools
from typing import Any

from made_up_groups import (
    ALGOS,
    dilated,
    gaining,
    group,
    in_stages,
    made_theirs,
    measured,
    on_a_v100,
    on_both_networks,
    on_wire,
    read,
    whole,
)
from made_up_predictions import divided, simulated, tradeoff

from repro.report import summaries
from repro.report.summaries import Results

NO_MOMENTUM = {"momentum": 0.0, "lr": 1.0}
REFERENCE = [  # two epochs; repeats of one setting lie 0.2 and 0.4 points apart
    {"job": job, "model": "resnet20", "algo": algo, "density": density, "nodes": 4, "batch_per_node": 32, "lr": 0.1}
    | {"test_accuracy": [50.0, accuracy]}
    for job, algo, density, accuracy in (
        (1, "dense", 1, 60.0),
        (2, "dense", 1, 60.2),
        (3, "topk", 0.001, 59.0),
        (4, "topk", 0.001, 59.4),
        (5, "topk at density 1 (sends all: dense)", 1, 60.1),
        (6, "randomk", 0.001, 40.0),
    )
]


def everything() -> Results:
    paper = summaries.paper()
    made = {
        "convergence": _groups(group(m, a, n_seeds=2) for m, a in itertools.product(("resnet20", "vgg16"), ALGOS)),
        "select_from_k_times_P": _groups(group("resnet20", a) for a in ("dense", "topk", "gtopk_from_topk")),
        "density_sensitivity": _groups(
            [
                group("resnet20", "dense"),
                *(group("resnet20", "gtopk", density=d) for d in (0.001, 0.0005, 0.0001)),
            ]
        ),
        "many_nodes": _groups(
            [
                *(group("resnet20", a, nodes=32, density=0.008) for a in ("dense", "gtopk", "scalecom")),
                whole("dense", [0], nodes=32),
                on_wire(gaining(whole("gtopk_corrected", [0], more=-0.01, nodes=32, density=0.032), 40), "gaps-bf16"),
            ]
        ),
        "momentum": _groups(
            [
                whole("dense", [0, 1]),
                whole("gtopk", [0, 1], more=-0.005),
                whole("topk", [0], more=-0.01),
                *(
                    whole(a, [0, 1], epochs=15, more=more, **rule)
                    for a, rule, more in (
                        ("dense", {}, 0.0),
                        ("dense", NO_MOMENTUM, -0.002),
                        ("gtopk", {}, -0.004),
                        ("gtopk", NO_MOMENTUM, -0.001),
                    )
                ),
            ]
        ),
        "wire_formats": _groups(
            [
                on_wire(whole("gtopk", [0, 1], more=-0.004, epochs=15), "pairs"),  # the seeds of momentum once more
                on_wire(whole("gtopk", [0, 1], more=-0.006, epochs=15), "packed"),
            ]
        ),
        "batch_sensitivity": _groups(group("resnet20", a, batch=b) for a in ("dense", "gtopk") for b in (32, 64, 128)),
        "language": _groups(read(group("lstm_small", a)) for a in ("dense", "topk", "gtopk")),
        "quickstart": _groups(group("resnet20", a, data="digits", density=0.01) for a in ("dense", "topk", "gtopk")),
        "throughput": _groups(group("resnet20", a, nodes=p, steps=1) for a in ALGOS for p in (4, 8, 16, 32)),
        "lab": _groups(group("resnet20", a, nodes=8, steps=3) for a in ALGOS),
        "families": _groups(on_both_networks(group("resnet20", a, n_seeds=2)) for a in ALGOS),
        "relaxations": _groups(
            [
                measured(group("vgg16", "topk"), overlap="off"),
                measured(group("vgg16", "dense"), overlap="off"),
                measured(group("vgg16", "dense"), overlap="on", hidden_s=0.05),
            ]
        ),
        "tree_schedule": _groups([group("resnet20", "gtopk", nodes=2, recorded=[record(2)])]),
        "selection_example": _groups([group("resnet20", "gtopk", nodes=2, recorded=[record(2)])]),
        "bytes_per_step": _groups(
            [
                *(group("resnet20", a, nodes=2, recorded=[record(2)]) for a in ALGOS),
                on_wire(group("resnet20", "gtopk"), "pairs", 2152),
                on_wire(group("resnet20", "gtopk"), "packed", 656),
            ]
        ),
        "residual_mass": _groups(
            group("resnet20", a, nodes=4, recorded=[record(4, 0.5), record(4, 0.25)])
            for a in ("gtopk", "gtopk_butterfly")
        ),
        "simulate": {
            "network": {"name": "ethernet1g"},
            "rows": [simulated(m, a, p) for m in ("resnet20", "alexnet") for a in ALGOS for p in (4, 8, 16, 32)],
        },
        "algorithms": {
            "rows": [
                {
                    "algo": a,
                    "nodes": 32,
                    "parameters": 1000,
                    "bytes_sent_most": 7750 - 100 * i,
                    "rounds_most": 62,
                    "bytes_sent_mean": 7000 - 100 * i,
                    "socket_bytes_most": 16678 - 100 * i,
                }  # fmt: skip
                for i, a in enumerate(ALGOS)
            ]
        },
        "tradeoff": tradeoff(),
        "split_predictions": divided(),
        "strategies": _groups(in_stages(dilated(group("resnet20", a), "off"), s) for a in ALGOS[:1] for s in (1, 2)),
        "regret": {
            "rows": [
                {
                    "model": "vgg16",
                    "nodes": 4,
                    "bits_per_s": 1e8,
                    "choice": "topk",
                    "choice_s": 0.22,
                    "best": "gtopk",
                    "best_s": 0.2,
                    "regret": 1.1,
                    "predicted_s": {"topk": 0.21, "gtopk": 0.23},
                }  # fmt: skip
            ],
            "mean": 1.1,
            "worst": 1.1,
        },
        "lab/network": {
            "alpha_s": 0.45e-3,
            "beta_s_per_byte": 8.2e-9,
            "alpha_error": 1e-6,
            "beta_error": 1e-11,
            "points": [
                {"bytes": size, "seconds": 5e-4, "spread_s": 1e-5, "repeats": 7, "fitted": True}
                for size in (64, 256, 1024)
            ],
        },
        "dilated": _groups(
            [
                dilated(group("resnet20", a, nodes=p, batch=128), overlap)
                for a, overlap in (("dense", "off"), ("dense", "on"), ("topk", "off"), ("gtopk", "off"))
                for p in (8, 32)
            ]
        ),
        "tradeoff_dilated": _groups(
            on_a_v100(model, algo, gbps)
            for model in ("vgg16_imagenet", "resnet50")
            for algo in ("ddp", "dense", "gtopk", "bytegrad")
            for gbps in (1, 10, 100)
        ),
        "authors_messages": _groups(
            made_theirs(dilated(group("resnet20", "gtopk", nodes=32, batch=128), "off"), authors, more_s)
            for authors, more_s in (("none", 0.0), ("pairs", 0.001), ("barriers", 0.0005), ("all", 0.002))
        ),
        "lab/dilation": {"rows": [slowed("gtopk", 4, dilation) for dilation in (1, 8, 16)]},
        "lab/dilation_dense": {"rows": [slowed("dense", 8, dilation) for dilation in (8, 16)]},
        "lab/dilated/collectives": {"rows": [collective(a, p) for a in ALGOS for p in (4, 8, 16, 32)]},
    }
    return Results(paper, made, REFERENCE)


def nothing() -> Results:
    return Results(summaries.paper(), {})


def slowed(algo: str, nodes: int, dilation: int) -> dict[str, Any]:
    """A hundredth slower at twice the dilation."""
    row = collective(algo, nodes)
    return row | {"seconds": row["seconds"] * (1 + dilation / 800), "dilation": float(dilation)}


def record(nodes: int, lost: float = 0.0) -> dict[str, Any]:
    """Neighbours swap two pairs, once."""
    own = [{"index": [1, 5], "value": [0.5, -1.0]} for _ in range(nodes)]
    return {
        "step": 1,
        "nodes": nodes,
        "parameters": 10,
        "k": 2,
        "kept": 2,
        "held_mass": 9.0,
        "selected_mass": 1.5 * nodes,
        "lost_mass": lost,
        "schedule": [[[rank ^ 1, 16, rank ^ 1, 16, 1]] for rank in range(nodes)],
        "selections": own,
        "result": {"index": [1, 5], "value": [0.5 * nodes, -1.0 * nodes]},
    }


def collective(algo: str, nodes: int) -> dict[str, Any]:
    """Top-k grows with P, gTop-k's tree with log P; they cross between 4 and 8."""
    seconds = {
        "dense": 2.0,
        "topk": 0.002 * nodes,
        "gtopk": 0.005 * nodes.bit_length(),
        "gtopk_butterfly": 0.0025 * nodes.bit_length(),
    }[algo]
    return {
        "algo": algo,
        "nodes": nodes,
        "parameters": 25_600_000,
        "seconds": seconds,
        "spread": seconds / 100,
        "modelled": 0.9 * seconds,
        "bound": 0.8 * seconds,
        "repeats": 5,
        "dilation": 16.0,
    }


def _groups(groups: Any) -> dict[str, Any]:
    return {"groups": list(groups)}
