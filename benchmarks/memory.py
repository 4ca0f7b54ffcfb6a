"""Measure the peak memory of short runs, beside what `repro.cluster.memory` says they need.

    python benchmarks/memory.py                            four networks, 1, 2 and 4 nodes
    python benchmarks/memory.py resnet20 nodes=2,8 algo=dense

A run is two steps on made-up images: memory does not depend on what they show.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from repro.cluster import memory
from repro.config.compose import compose

NETWORKS = {
    "resnet20": ["batch_per_node=32"],
    "vgg16": ["batch_per_node=32"],
    "alexnet": ["batch_per_node=4", "data.image_size=224", "data.classes=1000"],
    "resnet50": ["batch_per_node=4", "data.image_size=224", "data.classes=1000"],
}
COMMON = [
    "data=synthetic",
    "data.train_images=128",
    "data.test_images=16",
    "steps=2",
    "threads=1",
    "wandb.mode=disabled",
]


def measure(settings: list[str]) -> int:
    """Peak resident bytes of a run as threads."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "repro", "run", *settings, f"results={folder}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = process.stderr.read() if process.stderr else ""
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(said)
    return usage.ru_maxrss * 1024


def main(names: list[str], overrides: list[str]) -> None:
    for name in names or NETWORKS:
        swept = [] if any(one.startswith("nodes=") for one in overrides) else ["nodes=1,2,4"]
        for config in compose([f"model={name}", *COMMON, *NETWORKS[name], *swept, *overrides]):
            needed = memory.needed(config)
            settings = [f"model={name}", *COMMON, *NETWORKS[name], *overrides, f"nodes={config.nodes}"]
            measured = measure([one for one in settings if one == f"nodes={config.nodes}" or "nodes=" not in one])
            row = {
                "network": name, "nodes": str(config.nodes), "measured MB": f"{measured / 1e6:.0f}",
                "formula MB": f"{needed / 1e6:.0f}", "formula / measured": f"{needed / measured:.2f}",
            }  # fmt: skip
            print("  ".join(f"{name} {cell}" for name, cell in row.items()), flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    main([one for one in given if "=" not in one], [one for one in given if "=" in one])
