"""Classifies image files with a trained network: of a run folder, or of a file that `repro export` wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from repro import screen
from repro.config.schema import ConfigError
from repro.data._images.preprocess import Preprocessing
from repro.data._shards import TEST_BATCH
from repro.runs import progress
from repro.tables import Row
from repro.train import export, trained


class Classifier(NamedTuple):
    """Gives logits [B, classes] of images [B, 3, H, W], and says how these are made and what the classes are."""

    logits: Callable[[Tensor], Tensor]
    preprocessing: Preprocessing
    labels: list[str] | None


def run(network: str, files: Sequence[Path], top: int, results: Path) -> list[Row]:
    """Prints and returns a row for each image and each of its `top` classes. Raises ConfigError."""
    classifier = load(network, results)
    rows: list[Row] = []
    with torch.no_grad():
        for first in range(0, len(files), TEST_BATCH):
            some = files[first : first + TEST_BATCH]
            shares = classifier.logits(classifier.preprocessing.read(some)).float().softmax(1)
            best = shares.topk(min(top, shares.shape[1]))
            for file, probabilities, classes in zip(some, best.values.tolist(), best.indices.tolist(), strict=True):
                for number, share in zip(classes, probabilities, strict=True):
                    label = classifier.labels[number] if classifier.labels else None
                    rows.append({"image": str(file), "class": number, "label": label, "probability": share})
    shown = ({**row, "probability": None, "probability (%)": 100 * row["probability"]} for row in rows)
    screen.show(screen.filled(list(shown)))
    return rows


def load(network: str, results: Path) -> Classifier:
    """Returns the network of a file by its ending, else of a run. Raises ConfigError."""
    file = Path(network)
    endings = {form.suffix for form in export.FORMATS.values()}
    if file.is_dir() or file.suffix not in endings:
        run = trained.load(trained.folder_of(network, results))
        for text in run.passed_over:
            progress.warn(text)
        return _classifier(run.model, run.about)
    if not file.is_file():
        raise ConfigError(f"{file}: there is no such file.")
    if file.suffix == ".pt2":
        raise ConfigError(
            f"{file}: torch.export.load can run code that a file holds, so it is not opened here. Name the run, or "
            "export it with --format onnx."
        )
    try:
        return _from_onnx(file) if file.suffix == ".onnx" else _from_safetensors(file)
    except (ConfigError, MemoryError):
        raise
    except Exception as error:  # the packages raise almost anything on files that are not theirs
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{file} is no network that `repro export` wrote: {type(error).__name__}: {reason}") from None


def _from_safetensors(file: Path) -> Classifier:
    export.require(("safetensors",), f"{file.name}")
    from safetensors import safe_open

    with safe_open(file, framework="pt") as stored:
        about = json.loads(stored.metadata()[export.KEY])
        state = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  (it is no dict)
    network = about["network"]
    size = about["preprocessing"]["image_size"]
    model = trained.untrained(network["name"], network["classes"], size, network["options"])
    model.load_state_dict(state)
    return _classifier(model, about)


def _from_onnx(file: Path) -> Classifier:
    export.require(("onnxruntime",), f"{file.name}")
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

    def logits(images: Tensor) -> Tensor:
        (found,) = session.run(["logits"], {"images": np.ascontiguousarray(images.numpy())})
        return torch.from_numpy(found)

    return _classifier(logits, json.loads(session.get_modelmeta().custom_metadata_map[export.KEY]))


def _classifier(logits: Callable[[Tensor], Tensor], about: dict[str, Any]) -> Classifier:
    return Classifier(logits, Preprocessing(**about["preprocessing"]), about["labels"])
