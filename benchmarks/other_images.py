"""Measure what CIFAR-10's encoding as JPEG takes: trained networks on the test images of several data folders.

python benchmarks/other_images.py RUN_FOLDER... --data FOLDER FOLDER
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import torch

from repro import data, screen
from repro.config.compose import from_yaml
from repro.data import Dataset
from repro.data._shards import TEST_BATCH
from repro.runs import same_data
from repro.train import classify


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_FOLDER")
    parser.add_argument("--data", type=Path, nargs="+", default=[Path("data")])
    arguments = parser.parse_args()
    rows = []
    for run in arguments.runs:
        network = classify.load(str(run), run.parent)
        config = from_yaml(run / "config.yaml")
        row = {"run": run.name, "trained on": str(same_data.trained_on(run))}
        for root in arguments.data:
            options = dataclasses.replace(config.data, root=str(root), fingerprint="")
            dataset = data.load(options, config.seed, config.on_bad_image)
            row[f"{root}: {dataset.description} (%)"] = f"{100 * accuracy(network, dataset):.2f}"
        rows.append(row)
    screen.show(rows)


@torch.no_grad()
def accuracy(network: classify.Classifier, dataset: Dataset) -> float:
    batches = dataset.test_batches(0, 1, TEST_BATCH)
    right = sum(int((network.logits(images).argmax(1) == labels).sum()) for images, labels in batches)
    return right / dataset.test_size


if __name__ == "__main__":
    main()
