"""Says before a sweep about how long it will take on this machine and how much disk.

Training: from one timed step a model. Iterations of stated compute in the lab: from what their messages should take.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from repro import algorithms, data, models, screen
from repro.children import usable_cores
from repro.cluster import environment
from repro.comm.bucket_spans import Shapes
from repro.config.parts import Algo
from repro.config.schema import Config
from repro.runs.checkpoint import KEEP, newest_step
from repro.timing import stated_iteration
from repro.timing.node_profile import layers, model
from repro.train.precision import arithmetic
from repro.train.time_left import Forecast
from repro.waiting import track

TIMED_ALONE = 8  # steps' worth of compute before a run: what `before_run` repeats on one rank
STARTED_S, MIRRORED_S = 1.5, 3.5  # ours: a run's start and end, and those of its mirror, besides the steps
LINE_BYTES = 700  # of a step in metrics.jsonl and in the mirror
STAND_IN = 1 << 16  # parameters of which an algorithm's state is sized
MOST_SAMPLES = 32  # that are timed at once; a larger batch takes proportionally longer


def of(configs: Sequence[Config]) -> Forecast:
    """Returns `about 2 min on this machine, 30 MB of disk` and the seconds of each run.

    Without a time where it cannot be told from one step.
    """
    long = steps(configs)
    disk = needed_bytes(configs, long)
    said = f"{screen.size(disk)} of disk in {configs[0].results}"
    free = shutil.disk_usage(_existing(Path(configs[0].results))).free
    if disk > free:
        said += f", where {screen.size(free)} are free: name another place with results=FOLDER"
    if not all(map(tellable, configs)):
        return Forecast(said, None)
    each = seconds(configs, long)
    return Forecast(f"about {screen.duration(sum(each))} on this machine, {said}", each)


def tellable(config: Config) -> bool:
    """Returns whether a step's time on this machine's processor, or a network's, says how long a run takes."""
    if environment.find_place(config) is not None:
        return False
    if config.cluster.name == "lab":
        return config.node is not None and config.stages == 1
    return config.device == "cpu" or not torch.cuda.is_available()


def steps(configs: Sequence[Config]) -> list[int]:
    """Returns how many steps each run still has to do; counts the samples of each data set once."""
    counted: dict[str, int] = {}
    found = []
    for config in configs:
        if config.node is not None:  # nothing is trained: its data need not be there
            found.append(1)
            continue
        if config.steps is None and str(config.data) not in counted:
            counted[str(config.data)] = data.training_samples(config.data)
        whole = config.steps or config.epochs * (counted[str(config.data)] // config.samples_per_step)
        found.append(max(0, whole - newest_step(config.folder / "checkpoints")))
    return found


def seconds(configs: Sequence[Config], long: Sequence[int]) -> list[float]:
    """Returns what each run would take. Times one step of each model and batch of those of `long` steps that train."""
    cases = {_case(config): config for config in configs if config.node is None}
    timed = {}
    if cases:
        labels = f"timing a step of {', '.join(dict.fromkeys(config.model.name for config in cases.values()))}"
        timed = {_case(config): step_seconds(config) for config in track(cases.values(), labels, len(cases))}
    cores = usable_cores()
    networks: dict[str, Shapes] = {}
    found = []
    for config, count in zip(configs, long, strict=True):
        mirrored = MIRRORED_S if config.wandb.mode != "disabled" else 0
        if config.node is not None:
            if _case(config) not in networks:
                networks[_case(config)] = layers(config)
            found.append(STARTED_S + mirrored + stated_iteration.expected_s(config, networks[_case(config)]))
            continue
        step = timed[_case(config)]
        training = count * config.nodes * step / min(cores, config.nodes) + TIMED_ALONE * step
        found.append(STARTED_S + mirrored + training)
    return found


def _case(config: Config) -> str:
    return str(
        (
            config.model,
            config.data.classes,
            config.data.image_size,
            config.data.sequence,
            config.batch_per_node,
            config.accumulate,
            config.precision,
        )
    )


def step_seconds(config: Config) -> float:
    """Returns the seconds of forward and backward of one rank's batch on one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        network, data = model(config), config.data
        count = min(config.batch_per_node, MOST_SAMPLES)
        for part in (min(count, 2), count):  # the first warms up
            inputs, labels = models.made_up_batch(part, data.classes, data.image_size, data.sequence)
            start = time.perf_counter()
            with arithmetic(config.precision, "cpu"):
                logits = network(inputs).float()
            F.cross_entropy(logits, labels).backward()
        return (time.perf_counter() - start) * config.batch / count
    finally:
        torch.set_num_threads(threads)


def needed_bytes(configs: Sequence[Config], long: Sequence[int]) -> float:
    """Returns the bytes of the run folders: the checkpoints that stand there at once at most, and a line for each step.

    Parameters and momentum are saved once, or by each rank where each has its own; what an algorithm keeps by each.
    """
    vectors: dict[str, int] = {}  # bytes of a gradient
    kept: dict[str, float] = {}
    total = 0.0
    for config, count in zip(configs, long, strict=True):
        if config.node is not None:  # nothing is trained, so there is no checkpoint
            total += LINE_BYTES
            continue
        if _case(config) not in vectors:
            vectors[_case(config)] = 4 * sum(map(math.prod, layers(config)))
        if (algo := str(config.algo)) not in kept:
            kept[algo] = kept_vectors(config.algo)
        copies = config.nodes // config.stages
        saved = copies * kept[algo] + 2 * (copies if algorithms.of(config.algo).mixes else 1)
        total += (KEEP + 1) * vectors[_case(config)] * saved + LINE_BYTES * count
    return total


def kept_vectors(algo: Algo) -> float:
    """Returns how many times a gradient's bytes one rank's state of the algorithm has: that of a small stand-in.

    What is made in the first steps only (onebit's part of 1/P for all ranks) is left out.
    """
    algorithm = algorithms.load(algo, STAND_IN, shapes=[(STAND_IN,)])
    algorithm.begin(torch.zeros(STAND_IN))
    return _bytes(algorithm.state_dict()) / (4 * STAND_IN)


def _bytes(state: Any) -> int:
    if isinstance(state, Tensor):
        return state.nbytes
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else ()
    return sum(map(_bytes, parts))


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())
