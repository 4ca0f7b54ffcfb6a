"""Made-up groups of runs, as summaries have them, for tests alone: with numbers that are easy to check."""

from __future__ import annotations

import functools
from typing import Any

from repro.config.compose import compose
from repro.config.groups import group_options
from repro.report.group import Group, rounded

ALGOS = ("dense", "topk", "gtopk", "gtopk_butterfly")
MACHINE = {
    "versions": {"python": "3.11.0", "torch": "2.11.0"},
    "cpu": "A processor",
    "cpus": 2,
    "gpus": [],
    "git": {"commit": "0123456789abcdef", "dirty": False},
}


@functools.cache
def options(model: str, data: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of a network and of its data, where there are such."""
    if model not in group_options("model") or data not in group_options("data"):
        return {}, {}
    (config,) = compose([f"model={model}", f"data={data}"])
    return config.model.options, config.data.options


def group(
    model: str,
    algo: str,
    *,
    nodes: int = 4,
    batch: int = 32,
    density: float = 0.001,
    data: str = "cifar10",
    n_seeds: int = 1,
    steps: int | None = None,
    recorded: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Accuracy rises by 10 points an epoch to 50 %, and is 1 point lower with each next algorithm."""
    of_model, of_data = options(model, data) if data != "text" and "lstm" not in model else ({}, {})
    behind = 0.01 * (ALGOS.index(algo) if algo in ALGOS else 1)
    spread = None if n_seeds == 1 else 0.005
    apart = 0.005 / 2**0.5  # of two seeds from their mean
    curve = [
        {
            "epoch": epoch,
            "step": 100 * epoch,
            "train_loss": 2.5 - 0.2 * epoch,
            "train_loss_std": spread,
            "test_loss": 2.4,
            "test_loss_std": spread,
            "test_accuracy": 0.1 * epoch - behind,
            "test_accuracy_std": spread,
        }
        for epoch in range(1, 6)
    ]
    return {
        "settings": {
            "model": {"name": model, "options": of_model},
            "algo": {
                "name": algo,
                "sparse": algo != "dense",
                "options": {"residual": "exact" if "butterfly" in algo else "paper"},
            },
            "data": {"name": data, "classes": 10, "image_size": 32, "options": of_data},
            "network": {"name": "ethernet1g", "alpha_s": 1e-3, "beta_s_per_byte": 9e-9},
            "cluster": {"name": "local"},
            "nodes": nodes,
            "batch_per_node": batch,
            "accumulate": 1,
            "precision": "float32",
            "threads": None,
            "epochs": 5,
            "steps": steps,
            "schedule_epochs": 141,
            "scale_schedule": True,
            "lr": 0.1,
            "lr_warmup_epochs": 10.0,
            "lr_drop_factor": 0.1,
            "lr_drops": [81.0, 122.0, 155.0],
            "weight_decay": 1e-4,
            "momentum": 0.9,
            "density": 1.0 if algo == "dense" else density,
            "density_warmup": [0.004] if algo != "dense" and density < 0.004 else [],
        },
        "data": f"{data} (JPEG folder)",
        "seeds": list(range(n_seeds)),
        "runs": [f"{model}-{algo}-d{density:g}-n{nodes}-b{batch}-s{seed}" for seed in range(n_seeds)],
        "machine": MACHINE,
        "curve": curve,
        "per_step": {"k": 269, "bytes_sent": 2152, "messages": 1, "rounds": 1},
        "iteration_time": [
            {
                "source": "modelled",
                "network": "ethernet1g",
                "nodes": nodes,
                "compute_s": 0.1,
                "compress_s": 0.01,
                "communicate_s": {"dense": 0.4, "topk": 0.05}.get(algo, 0.02),
            }
        ],
        "recorded": recorded or [],
        "seed_accuracies": [[rounded(row["test_accuracy"] + side * apart) for row in curve] for side in (-1, 1)]
        if n_seeds == 2
        else [],
    }


def read(group: dict[str, Any]) -> dict[str, Any]:
    """The same group on text: its perplexity is 100 less its accuracy in percent."""
    group["settings"] |= {"lr": 1.0, "momentum": 0.0, "clip_grad": 0.25}
    of_model, of_data = options(group["settings"]["model"]["name"], "text")
    group["settings"]["model"]["options"] = of_model
    group["settings"]["data"] = {"name": "text", "image_size": 0, "sequence": 35, "classes": 2000, "options": of_data}
    for row in group["curve"]:
        row["test_perplexity"], row["test_perplexity_std"] = 100 - 100 * row.pop("test_accuracy"), None
        del row["test_accuracy_std"]
    return group | {"data": "text (a book)"}


def measured(group: dict[str, Any], overlap: str, hidden_s: float = 0.0) -> dict[str, Any]:
    """The same group, in the lab."""
    group["settings"]["overlap"] = overlap
    group["iteration_time"] = [time | {"source": "measured", "hidden_s": hidden_s} for time in group["iteration_time"]]
    return group


def dilated(group: dict[str, Any], overlap: str) -> dict[str, Any]:
    """The same group in the dilated lab, a tenth slower than modelled, with published compute; three repeats."""
    (model,) = group["iteration_time"]
    own = model | {"communicate_s": 1.1 * model["communicate_s"], "hidden_s": 0.1 if overlap == "on" else 0.0}
    total = own["compute_s"] + own["compress_s"] + own["communicate_s"] - own["hidden_s"]
    own |= {"source": "measured, dilated 8 x", "dilation": 8.0, "node": "paper", "repeats": 3}
    own["iterations_s"] = [0.99 * total, total, 1.01 * total]
    group["settings"]["overlap"] = overlap
    return group | {"iteration_time": [model | {"node": "paper"}, own]}


def on_a_v100(model: str, algo: str, gbps: int) -> dict[str, Any]:
    """16 nodes; dense sends 4 s at 1 Gbps, gTop-k 0.02 s, ByteGrad 1 s; what compresses takes 0.05 s for it."""
    seconds = {"gtopk": 0.02, "bytegrad": 1.0}.get(algo, 4.0) / gbps
    made = dilated(group(model, algo, nodes=16), "on" if algo == "dense" else "off")
    made["settings"]["network"] |= {"name": f"ethernet{gbps}g", "bits_per_s": 1e9 * gbps}
    exact = algo in ("ddp", "dense")
    own = {
        "network": f"ethernet{gbps}g",
        "compress_s": 0.0 if exact else 0.05,
        "communicate_s": seconds,
        "hidden_s": 0.0,
    }
    made["iteration_time"] = [time | own for time in made["iteration_time"]]
    made["iteration_time"][-1]["source"] = "measured, dilated 8 x" + (", latency not held" if algo == "ddp" else "")
    return made


def on_wire(group: dict[str, Any], wire: str, sent: int | None = None) -> dict[str, Any]:
    """The same group with its pairs in a format, in which a node sends so many bytes a step."""
    group["settings"]["algo"]["wire"] = wire
    if sent is not None:
        group["per_step"] |= {"bytes_sent": sent}
    return group | {"runs": [f"{run}-{wire}" for run in group["runs"]]}


def gaining(group: dict[str, Any], gain: float) -> dict[str, Any]:
    """The same group without momentum, and with all its updates so many times as large."""
    group["settings"] |= {"momentum": 0.0, "density_warmup": []}
    group["settings"]["algo"]["gain"] = gain
    return group


def in_stages(group: dict[str, Any], stages: int) -> dict[str, Any]:
    group["settings"]["stages"] = stages
    return group


def made_theirs(group: dict[str, Any], authors: str, more_s: float) -> dict[str, Any]:
    """The same group with messages as the authors' code has them, which take so much longer."""
    group["settings"]["cluster"] |= {"authors": authors}
    times = [time | {"communicate_s": time["communicate_s"] + more_s} for time in group["iteration_time"]]
    if "iterations_s" in times[-1]:
        times[-1]["iterations_s"] = [one + more_s for one in times[-1]["iterations_s"]]
    return group | {"iteration_time": times}


def on_both_networks(group: dict[str, Any]) -> dict[str, Any]:
    """The same group, its communication a tenth as long on the faster network."""
    (slow,) = group["iteration_time"]
    fast = slow | {"network": "ethernet10g", "communicate_s": slow["communicate_s"] / 10}
    return group | {"iteration_time": [slow, fast]}


def whole(algo: str, seeds: list[int], every: int = 1, more: float = 0.0, **settings: Any) -> dict[str, Any]:
    """Of 141 epochs, or the first `epochs` of them, evaluated every so many.

    An accuracy is its epoch's number and the seed's in thousandths, and so much `more`.
    """
    made, last = group("resnet20", algo), settings.get("epochs", 141)
    made["settings"] |= {"scale_schedule": False, "epochs": 141, "precision": "bfloat16"} | settings
    epochs = [*range(every, last, every), last]
    made["curve"] = [
        made["curve"][0]
        | {"epoch": epoch, "step": 390 * epoch, "test_accuracy": epoch / 1000 + more, "test_accuracy_std": None}
        for epoch in epochs
    ]
    accuracies = [[epoch / 1000 + more + seed / 1000 for epoch in epochs] for seed in seeds]
    made |= {"seeds": seeds, "runs": [f"{algo}-{seed}-{every}-{settings}" for seed in seeds]}
    return made | {"seed_accuracies": accuracies if len(seeds) > 1 else []}


def run(algo: str, epochs: int = 5, n_seeds: int = 1, **settings: Any) -> Group:
    """A run of the first epochs of 141; `epochs` of its curve."""
    made = group("resnet20", algo, n_seeds=n_seeds)
    made["runs"] = [f"{name}-{epochs}-{settings}" for name in made["runs"]]
    made["settings"] |= {"scale_schedule": False, "epochs": epochs} | settings
    made["curve"] = made["curve"][:epochs]
    return Group(**made)
