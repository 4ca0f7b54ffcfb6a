"""Writes a trained network in formats that other programs read; none of them holds a pickle, or a path of this machine.

What the network is stands in each as one JSON object under the name `repro`: see repro.train.trained.
"""

from __future__ import annotations

import importlib.util
import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from repro import screen
from repro.config.schema import ConfigError
from repro.json_text import json_text
from repro.runs import places, progress
from repro.runs.missing import PROVENANCE
from repro.train import trained
from repro.train.trained import Trained
from repro.whole_files import write_whole

KEY = "repro"  # of the JSON object in a file's metadata


class Format(NamedTuple):
    suffix: str
    packages: tuple[str, ...]  # that are not among those of every installation
    written: Callable[[Trained], bytes]


def run(folder: Path, name: str, out: Path | None) -> Path:
    """Writes the network of a run folder; returns the file. Raises ConfigError, and then writes nothing."""
    if name not in FORMATS:
        raise ConfigError(f"--format {name}: there is no such format. Choose one of {', '.join(FORMATS)}.")
    form = FORMATS[name]
    require(form.packages, f"--format {name}")
    file = Path(folder.resolve().name + form.suffix) if out is None else out
    if file.suffix != form.suffix:
        raise ConfigError(f"--out {file}: what --format {name} writes must end in {form.suffix}.")
    places.check_file(file)
    network = trained.load(folder)
    for text in network.passed_over:
        progress.warn(text)
    if not (folder / PROVENANCE).is_file():
        progress.warn(f"{PROVENANCE} is missing in {folder}: the file does not say which images the network has seen")
    content = _content(network, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, content)
    print(screen.sentence(said(file, len(content), network.about)))
    return file


def _content(network: Trained, name: str) -> bytes:
    try:
        return FORMATS[name].written(network)
    except (RuntimeError, ValueError) as error:  # of torch.export too
        first: BaseException = error
        while first.__cause__ is not None:  # that of ONNX says in which of its own steps it was
            first = first.__cause__
        model, why = network.about["network"]["name"], str(first).partition("\n")[0].rstrip(". ")
        other = "" if name == "safetensors" else "; try --format safetensors"
        raise ConfigError(f"model={model} cannot be written as {name}: {why}{other}") from error


def require(packages: tuple[str, ...], asked: str) -> None:
    """Raises ConfigError where a package is missing, with what to type."""
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise ConfigError(
            f"{asked} needs {' and '.join(missing)}, not installed here. Type `uv sync --extra export` in a clone, "
            f"elsewhere `pip install {' '.join(missing)}`."
        )


def said(file: Path, size: int, about: dict[str, Any]) -> str:
    training = about["training"]
    accuracy = training["test_accuracy"]
    known = "not evaluated at this step" if accuracy is None else f"test accuracy {100 * accuracy:.2f} %"
    labels = "with labels" if about["labels"] else "without labels: its data set has none here"
    network = f"{about['network']['name']} after step {training['step']:,}"
    return f"{file}: {screen.size(size)}, {network}, {known}, {labels}"


def safetensors(network: Trained) -> bytes:
    """Returns the state dict, under the names that the layers have; those that share a weight have a copy each."""
    from safetensors.torch import save

    state = {name: tensor.contiguous().clone() for name, tensor in network.model.state_dict().items()}
    return save(state, metadata={"format": "pt", KEY: json_text(network.about)})


def torch_export(network: Trained) -> bytes:
    """Returns the archive of torch.export, for any number of images at once; its graph needs no code of this suite."""
    program = torch.export.export(network.model, (_images(network),), dynamic_shapes=_any_batch())
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    program.example_inputs = None  # they would be written as a pickle
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={f"{KEY}.json": json_text(network.about)})
    return file.getvalue()


def onnx(network: Trained) -> bytes:
    """Returns an ONNX model from `images` [batch, 3, H, W] to `logits` [batch, classes]."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = torch.onnx.export(
        network.model, (_images(network),), dynamo=True, verbose=False, dynamic_shapes=_any_batch(),
        input_names=["images"], output_names=["logits"],
    )  # fmt: skip
    model = program.model_proto  # type: ignore[union-attr]  # None only without dynamo
    for node in model.graph.node:
        del node.metadata_props[:]  # paths of this machine
    model.metadata_props.add(key=KEY, value=json_text(network.about))
    return model.SerializeToString()


def _images(network: Trained) -> torch.Tensor:
    size = network.about["preprocessing"]["image_size"]
    return torch.zeros(2, 3, size, size)


def _any_batch() -> tuple[dict[int, Any]]:
    return ({0: torch.export.Dim("batch", min=1)},)


FORMATS = {
    "safetensors": Format(".safetensors", ("safetensors",), safetensors),
    "torch-export": Format(".pt2", (), torch_export),
    "onnx": Format(".onnx", ("onnx", "onnxscript"), onnx),
}
