"""What P local ranks cost over a plain loop: images per second of both on the same batches, in turns."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from repro import models, training
from repro.config import Config
from repro.data import Dataset
from repro.sweep import table


def measure_steps(configs: list[Config], steps: int, repeats: int, out: Path) -> None:
    """For each config: medians over `repeats` of the run itself and of two plain loops; appends to out/step.jsonl.

    `run`: `repro run` of so many steps, threads, records and checks included, evaluation and calibration not.
    `plain`: one loop over the same per-rank batches with all cores inside each operation, as torch does by itself.
    `plain_per_core`: one such loop per core, each with one intra-op thread; the most that the cores give.
    """
    out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, str]] = []
    for config in configs:
        data = training.load_data(config)
        taken: dict[str, list[float]] = {"run": [], "plain": [], "plain_per_core": []}
        for _ in range(repeats):
            taken["plain"].append(plain(config, data, steps, loops=1))
            taken["run"].append(run(config, steps))
            taken["plain_per_core"].append(plain(config, data, steps, loops=_cores()))
        medians = {name: statistics.median(values) for name, values in taken.items()}
        row: dict[str, Any] = {
            "model": config.model.name, "data": data.description, "algo": config.algo.name, "nodes": config.nodes,
            "batch_per_node": config.batch_per_node, "cores": _cores(), "steps": steps, "repeats": repeats,
            "images_per_s": taken, "medians": medians,
            "run_over_plain": ratio(taken["run"], taken["plain"]),
            "run_over_plain_per_core": ratio(taken["run"], taken["plain_per_core"]),
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }  # fmt: skip
        with (out / "step.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        rows.append({
            "model": row["model"], "algo": row["algo"], "nodes": str(row["nodes"]),
            **{f"{name} images/s": f"{value:.1f}" for name, value in medians.items()},
            "run / plain": f"{row['run_over_plain']:.3f}", "run / per core": f"{row['run_over_plain_per_core']:.3f}",
            "peak memory": f"{row['peak_memory_bytes'] / 1e9:.2f} GB",
        })  # fmt: skip
    table(rows)


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median of the pairs' ratios: a machine that slows down between pairs does not move it."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def run(config: Config, steps: int) -> float:
    """Images per second of `repro run` over so many steps, in a folder that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="repro-bench-") as folder:
        wandb = dataclasses.replace(config.wandb, mode="disabled")
        config = dataclasses.replace(config, results=folder, steps=steps, wandb=wandb)
        return training.run(config)["images_per_s"]


def plain(config: Config, data: Dataset, steps: int, loops: int) -> float:
    """Images per second of loops that know nothing of ranks: forward, backward, torch.optim.SGD, channels last."""
    barrier, ends = threading.Barrier(loops + 1), [0.0] * loops

    def loop(number: int) -> None:
        torch.set_num_threads(1 if loops > 1 else _cores())
        model = models.load(
            config.model.name, data.classes, data.image_size, config.seed, torch.Generator(), **config.model.options
        )
        optimizer = torch.optim.SGD(
            model.parameters(), config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=True
        )
        feeds = [
            data.batches(0, rank, config.nodes, config.batch_per_node) for rank in range(number, config.nodes, loops)
        ]

        def train(batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
            for images, labels in batches:
                optimizer.zero_grad()
                F.cross_entropy(model(images.to(memory_format=torch.channels_last)), labels).backward()
                optimizer.step()

        train(itertools.islice(data.batches(1, number, config.nodes, config.batch_per_node), 2))  # warm-up
        barrier.wait()
        for _ in range(steps):
            train(map(next, feeds))
        ends[number] = time.perf_counter()

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(loops)]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return steps * config.nodes * config.batch_per_node / (max(ends) - began)


def _cores() -> int:
    return len(os.sched_getaffinity(0))
