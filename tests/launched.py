"""Sweeps in a results folder, and `repro launch` of them, for tests alone."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from repro.cluster import slurm
from repro.runs import lock, status, status_file

SWEEP = ["model=resnet20", "data=digits", "algo=dense,topk,gtopk", "nodes=4,2"]
UGLY = "a b'c\"d$(touch pwned);e\nf%A`touch pwned`*"


def placed(configs, results: Path) -> list:
    return [dataclasses.replace(config, results=str(results)) for config in configs]


def finish(config, state: str = "done") -> None:
    config.folder.mkdir(parents=True)
    for name in ("config.yaml", "provenance.json"):
        (config.folder / name).write_text("")
    status_file.write(config.folder, state, 5, 5)


def launch(configs: list, only: str | None, dry_run: bool, options: list[str]) -> Iterator[str]:
    return slurm.launch(configs, only, dry_run, options, status.states, lock.in_turn)
