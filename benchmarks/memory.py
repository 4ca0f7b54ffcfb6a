"""Measure the peak memory of short runs, beside what `repro.cluster.memory` says they need.

    python benchmarks/memory.py                            every case, 1, 2 and 4 nodes
    python benchmarks/memory.py resnet20 nodes=16,32 data.test_images=10000    ranks that share heaps

A run is two steps on made-up images: memory does not depend on what they show. It fails where a run takes more than
the formula says, which would let runs start that the kernel then kills.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from repro.cluster import memory
from repro.config.compose import compose
from repro.config.schema import Config

FEW = ["data.test_images=16"]  # so that training takes more than the evaluation
LARGE = ["data.image_size=224", "data.classes=1000"]
CASES = {
    "resnet20": ["model=resnet20", "batch_per_node=32", *FEW],
    "vgg16": ["model=vgg16", "batch_per_node=32", *FEW],
    "alexnet": ["model=alexnet", "batch_per_node=4", *LARGE, *FEW],
    "resnet50": ["model=resnet50", "batch_per_node=4", *LARGE, *FEW],
    "evaluation": ["model=resnet20", "batch_per_node=2", "data.image_size=64", "data.test_images=1000"],
    "images": ["model=resnet20", "batch_per_node=32", "data.image_size=64", "data.train_images=50000", *FEW],
}
COMMON = ["data=synthetic", "steps=2", "threads=1", "wandb.mode=disabled"]


def measure(settings: dict[str, str]) -> int:
    """Returns the peak resident bytes of a run as threads."""
    with tempfile.TemporaryDirectory() as folder:
        words = [f"{key}={value}" for key, value in settings.items()]
        command = [sys.executable, "-m", "repro", "run", *words, f"results={folder}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = process.stderr.read() if process.stderr else ""
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(said)
    return usage.ru_maxrss * 1024


def one(settings: dict[str, str]) -> Config:
    config, *more = compose([f"{key}={value}" for key, value in settings.items()])
    if more:
        raise SystemExit(
            "Only nodes may have several values: leave other commas out, and type the command once for each."
        )
    return config


def main(names: list[str], overrides: list[str]) -> None:
    swept = [word for word in overrides if word.startswith("nodes=")] or ["nodes=1,2,4"]
    overrides = [word for word in overrides if word not in swept]
    if unknown := [name for name in names if name not in CASES]:
        raise SystemExit(f"There is no case {unknown[0]!r}. Choose from {', '.join(CASES)}.")
    low = []
    for name in names or CASES:
        for nodes in swept[-1].removeprefix("nodes=").split(","):
            words = [*COMMON, *CASES[name], *overrides, f"nodes={nodes}"]
            typed = dict(word.split("=", 1) for word in words)  # the last word for a key counts
            config = one(typed)
            typed = {"data.train_images": str(config.nodes * config.batch_per_node), **typed}  # a step in each epoch
            needed, measured = memory.needed(one(typed)), measure(typed)
            row = {
                "case": name, "nodes": nodes, "measured MB": f"{measured / 1e6:.0f}",
                "formula MB": f"{needed / 1e6:.0f}", "formula / measured": f"{needed / measured:.2f}",
            }  # fmt: skip
            print("  ".join(f"{key} {cell}" for key, cell in row.items()), flush=True)
            low += [f"{name} nodes={nodes}"] if needed < measured else []
    if low:
        raise SystemExit(f"The formula says less than was taken: {', '.join(low)}.")


if __name__ == "__main__":
    given = sys.argv[1:]
    main([word for word in given if "=" not in word], [word for word in given if "=" in word])
