"""Measure how long the other ranks take to find one that froze or hangs, with the time-outs as they are by default.

    python benchmarks/detection.py                  ten trials of each on a machine as it is
    python benchmarks/detection.py --load 20        beside twenty processes that compute

Each trial is four processes that compute and sum in turns; after some seconds one stops (SIGSTOP) or sleeps for ever.
A trial that ends before that, or names another rank, is a false alarm.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from repro.cluster import ranks
from repro.cluster.ranks import Rank
from repro.config.compose import compose
from repro.config.schema import Config

AT_FAULT = 2
HEALTHY_S = 8.0  # that all ranks work before the fault


def work(config: Config, rank: Rank, kind: str) -> None:
    """Computes and sums in turns until the fault; the ranks agree on the moment."""
    matrix, began = torch.ones(256, 256), time.monotonic()
    for _ in iter(int, 1):
        matrix = torch.tanh(matrix @ matrix)
        healthy = torch.tensor([float(time.monotonic() - began < HEALTHY_S)])
        if rank.collective.all_reduce(healthy).item() < rank.size and rank.number == AT_FAULT:
            (Path(config.results) / "fault").write_text(str(time.monotonic()))
            if kind == "frozen":
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(10_000)


def frozen(config: Config, rank: Rank, shared: object) -> None:
    work(config, rank, "frozen")


def hanging(config: Config, rank: Rank, shared: object) -> None:
    work(config, rank, "hanging")


def nothing(config: Config) -> None: ...


def trial(kind: str) -> tuple[float, str]:
    """Returns the seconds from the fault to the end of all ranks, and what was said."""
    with tempfile.TemporaryDirectory() as folder:
        (config,) = compose(["data=digits", "nodes=4", "cluster=processes", f"results={folder}"])
        try:
            ranks.launch(config, frozen if kind == "frozen" else hanging, nothing)
        except Exception as error:
            ended, said, fault = time.monotonic(), str(error), Path(folder) / "fault"
            if not fault.exists() or f"rank {AT_FAULT}" not in said.split(". ")[0]:
                return float("nan"), said
            return ended - float(fault.read_text()), said
        raise SystemExit("the ranks ended without an error")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--load", type=int, default=0)
    given = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.load)]
    try:
        for kind in ("frozen", "hanging"):
            found = [trial(kind) for _ in range(given.trials)]
            false = [said for seconds, said in found if seconds != seconds]
            seconds = [seconds for seconds, _ in found if seconds == seconds]
            print(f"{kind}, {given.load} others compute, {given.trials} trials: {len(false)} false alarms", end="")
            if seconds:
                print(f"; found after {min(seconds):.0f} to {max(seconds):.0f} s", end="")
                print(f", median {statistics.median(seconds):.0f} s", end="")
            print(f"; {found[-1][1]}", *false, sep="\n  ", flush=True)
    finally:
        for process in busy:
            process.kill()


if __name__ == "__main__":
    main()
