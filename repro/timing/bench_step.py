"""Measures what P local ranks cost over a plain loop: images per second of both on the same batches, in turns."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from repro import models, screen
from repro.children import usable_cores
from repro.cluster import ranks
from repro.config.schema import Config, ConfigError
from repro.data import Dataset, Samples
from repro.json_text import json_text
from repro.runs import machine
from repro.timing import before_run, node_profile
from repro.train import loop, possible
from repro.train.precision import arithmetic
from repro.train.step import Batch, laid_out


def measure_steps(configs: list[Config], steps: int, repeats: int, out: Path) -> None:
    """Measures each config's run and three plain loops; appends their medians over `repeats` to out/step.jsonl.

    `run`: `repro run` of so many steps with threads, records and checks; its evaluation, of few images, is not in it.
    `plain`: one loop over the same per-rank batches with all cores inside each operation, as torch does by default.
    `plain_per_core`: one such loop per core, each with one intra-op thread.
    `plain_per_node`: one such loop per node, as the run has, each with one intra-op thread.
    """
    rows: list[dict[str, Any]] = []
    node_profile.check_nothing_stated(configs)
    node_profile.check_unstated(configs, "not needed")
    for config in configs:
        if config.accumulate > 1 or config.stages > 1:
            raise ConfigError(
                "a plain loop has one batch a step and the whole network; leave accumulate and stages out"
            )
        if config.device == "cuda":
            raise ConfigError("device=cuda: the plain loops run on the processor; leave device out")
    out.mkdir(parents=True, exist_ok=True)
    for config in (dataclasses.replace(one, device="cpu") for one in configs):  # as the plain loops are
        possible.check(config)
        data = loop.load_data(config)
        loops = {"plain": 1, "plain_per_core": usable_cores(), "plain_per_node": config.nodes}
        rates: dict[str, list[float]] = {name: [] for name in ("run", *loops)}
        for _ in range(repeats):
            rates["run"].append(run(config, steps))
            for name, number in loops.items():
                rates[name].append(plain(config, data, steps, number))
        medians = {name: statistics.median(values) for name, values in rates.items()}
        row: dict[str, Any] = {
            "model": config.model.name, "data": data.description, "algo": config.algo.name, "nodes": config.nodes,
            "batch_per_node": config.batch_per_node, "precision": config.precision,
            "messages": config.cluster.messages,
            "cores": usable_cores(), "processor": machine.processor(), "allocator": machine.allocator(),
            "steps": steps, "repeats": repeats,
            "images_per_s": rates, "medians": medians,
            **{f"run_over_{name}": ratio(rates["run"], rates[name]) for name in loops},
        }  # fmt: skip
        with (out / "step.jsonl").open("a") as file:
            file.write(json_text(row) + "\n")
        rows.append(row)
    screen.show(cells(rows), keys=5)


def cells(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the cells of the table; its first five say what a row is about."""
    return [
        {
            **{name: row[name] for name in ("model", "algo", "nodes", "precision", "messages")},
            "run (samples/s)": row["medians"]["run"],
            **{
                f"run over {name.replace('_', ' ')}": row[f"run_over_{name}"]
                for name in ("plain", "plain_per_core", "plain_per_node")
            },
        }
        for row in rows
    ]


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Returns the median of the pairs' ratios: a machine that slows down between pairs does not move it."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def run(config: Config, steps: int) -> float:
    """Returns the images per second of `repro run` over `steps` steps, in a folder that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="repro-bench-") as folder:
        wandb = dataclasses.replace(config.wandb, mode="disabled")
        config = dataclasses.replace(config, results=folder, steps=steps, wandb=wandb)
        main = functools.partial(loop.train, before_run=before_run.before_a_run)
        return ranks.launch(config, main, one_test_batch)["samples_per_s"]


class First:
    """Is the first so many of some samples."""

    def __init__(self, samples: Samples, number: int):
        self.read, self.number = samples.read, min(number, len(samples))

    def __len__(self) -> int:
        return self.number


def one_test_batch(config: Config) -> Dataset:
    """Returns the data with one test batch a node: a run ends with an evaluation, which takes VGG-16 minutes."""
    data = loop.load_data(config)
    return dataclasses.replace(data, test=First(data.test, config.nodes * config.batch_per_node))


def plain(config: Config, data: Dataset, steps: int, loops: int) -> float:
    """Returns the images per second of loops without ranks: forward, backward, torch.optim.SGD, channels last.

    From the first step on, as those of a run are, which plan their convolutions there too.
    """
    barrier, ends = threading.Barrier(loops + 1), [0.0] * loops

    def one_loop(number: int) -> None:
        torch.set_num_threads(1 if loops > 1 else usable_cores())
        model = models.load(
            config.model.name, data.classes, data.image_size, config.seed, torch.Generator(), **config.model.options
        )
        groups: list[dict[str, Any]] = [{"params": list(model.parameters())}]
        if config.weight_decay_of == "weights":
            groups = [
                {"params": [p for p in model.parameters() if p.dim() > 1]},
                {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
            ]
        optimizer = torch.optim.SGD(
            groups, config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=True
        )
        feeds = [endless(config, data, rank) for rank in range(number, config.nodes, loops)]

        def train(batches: Iterable[Batch]) -> None:
            for inputs, labels in batches:
                optimizer.zero_grad()
                with arithmetic(config.precision, "cpu"):
                    logits = model(laid_out(inputs)).float()
                F.cross_entropy(logits, labels).backward()
                if config.clip_grad:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_grad)
                optimizer.step()

        barrier.wait()
        for _ in range(steps):
            train(map(next, feeds))
        ends[number] = time.perf_counter()

    threads = [threading.Thread(target=one_loop, args=(number,)) for number in range(loops)]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return steps * config.nodes * config.batch_per_node / (max(ends) - began)


def endless(config: Config, data: Dataset, rank: int) -> Iterator[Batch]:
    """Yields a rank's batches, epoch after epoch."""
    for epoch in itertools.count():
        yield from data.batches(epoch, rank, config.nodes, config.batch_per_node)
