"""Reads the network that a run trained from its last good checkpoint, and says what it is and how it was trained."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from repro import data, models
from repro.config.compose import from_yaml
from repro.config.schema import Config, ConfigError, RunError
from repro.data._images.preprocess import Preprocessing
from repro.runs import checkpoint, missing, run_folder, status_file
from repro.runs.checkpoint import Checkpoint
from repro.train import saved_state, split
from repro.train.replica import Replica


class Trained(NamedTuple):
    """A network on the CPU in evaluation mode, and what is written beside its weights: see `describe`."""

    model: nn.Module
    about: dict[str, Any]
    passed_over: tuple[str, ...] = ()  # the later checkpoints that are not used, each with the reason


def folder_of(run: str, results: Path) -> Path:
    """Returns the run folder that `run` names: its path, RUN_ID or EXPERIMENT/RUN_ID under `results`.

    Raises ConfigError where there is none, or several.
    """
    if (Path(run) / missing.CONFIG).is_file():
        return Path(run)
    known = run_folder.run_folders(results)
    named = [folder for folder in known if run in (folder.name, f"{folder.parent.name}/{folder.name}")]
    found = [folder for folder in named if (folder / missing.CONFIG).is_file()]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"{run} is in several experiments: type one of {', '.join(map(str, found))}.")
    of_a_run = [Path(run)] if any((Path(run) / name).is_file() for name in run_folder.FILES) else named
    if of_a_run:
        lacks = f"{of_a_run[0]} is there, but has no {missing.CONFIG}"
        raise ConfigError(f"{lacks}: {missing.REMEDIES[missing.CONFIG]}.")
    raise ConfigError(
        f"{run}: there is no such run folder, and no run of this name under {results}. `repro status` lists the runs; "
        "--results FOLDER says where they are."
    )


def load(folder: Path) -> Trained:
    """Returns a run's network as its evaluation sees it. Raises ConfigError where no checkpoint of it can be used."""
    config = from_yaml(folder / "config.yaml")
    if config.node is not None:
        raise ConfigError(f"{folder}: node={config.node} measures messages beside stated compute; nothing was trained.")
    passed_over: list[str] = []
    for found, damage in checkpoint.newest_first(folder / "checkpoints"):
        try:
            if damage is None:
                model = _network(folder, config, found)
                return Trained(model, describe(folder, config, found.step), tuple(passed_over))
        except RunError as error:
            damage = str(error)
        passed_over.append(f"the checkpoint of step {found.step} is not used: {damage}")
    what = f"no checkpoint that can be used ({'; '.join(passed_over)})" if passed_over else "no checkpoint"
    if status_file.state(folder) == "done":  # `repro run` would leave it as it is
        raise ConfigError(f"{folder} has {what}: remove the folder and type its `repro run` again.")
    raise ConfigError(f"{folder} has {what}: type its `repro run` again to go on with it.")


def _network(folder: Path, config: Config, found: Checkpoint) -> nn.Module:
    stages = config.stages
    model = untrained(config.model.name, config.data.classes, config.data.image_size, config.model.options)
    parts = [model] if stages == 1 else split.kept(folder).modules(config.model.name, model)
    for stage, part in enumerate(parts):
        replica, file = Replica(part, momentum=0, weight_decay=0), saved_state.shared(stages, stage)
        saved_state.load_as_evaluated(replica, found.folder, range(stage, found.ranks, stages), file)
    for parameter in model.parameters():  # each on its own, no longer a part of the replica's vector
        parameter.data, parameter.grad = parameter.data.clone(), None
    return model


def untrained(name: str, classes: int, image_size: int, options: dict[str, Any]) -> nn.Module:
    """Returns a network in evaluation mode, whose weights are to be loaded. Raises ConfigError."""
    return models.load(name, classes, image_size, 0, torch.Generator(), **options).eval()


def describe(folder: Path, config: Config, step: int) -> dict[str, Any]:
    """Returns the network, its preprocessing, its labels and its training, as plain values for JSON."""
    at_step = [line for line in run_folder.read_metrics(folder) if line.get("step") == step]
    evaluated = [line for line in at_step if line["kind"] == "eval"]  # none where a run was stopped within an epoch
    provenance = status_file.read_object(folder / "provenance.json")
    content = data.Content(str(provenance.get("data", "")), str(provenance.get("fingerprint", "")))
    return {
        "network": {"name": config.model.name, "classes": config.data.classes, "options": config.model.options},
        "preprocessing": dataclasses.asdict(_preprocessing(config)),
        "labels": data.labels(config.data, content),
        "training": {
            "run": folder.name, "experiment": config.experiment, "data": str(content), "seed": config.seed,
            "algorithm": config.algo.name, "density": config.density, "nodes": config.nodes,
            "precision": config.precision, "step": step, "epochs": at_step[-1].get("epoch") if at_step else None,
            "test_accuracy": evaluated[-1].get("test_accuracy") if evaluated else None,
        },
    }  # fmt: skip


def _preprocessing(config: Config) -> Preprocessing:
    if config.data.kind == "text":
        raise ConfigError(f"model={config.model.name} reads text; only networks for images are exported, and predict.")
    options, size = config.data.options, config.data.image_size
    if missing := {"mean", "std"} - options.keys():
        raise ConfigError(
            f"data={config.data.name} has no {' and no '.join(sorted(missing))} in its YAML: how its images are "
            "normalised is not known, and the network would be of no use elsewhere."
        )
    return Preprocessing(size, data.shorter_side(config.data), list(options["mean"]), list(options["std"]))
