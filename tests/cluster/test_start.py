"""Ranks that srun starts, one of which refuses to begin: the others end with its error, soon."""

import os
import signal
import socket
import time
from pathlib import Path

import forked_cli
import pytest

from repro.cluster import environment

SWEEP = ["data=synthetic", "data.train_images=128", "data.test_images=16", "data.image_size=8", "batch_per_node=4",
         "wandb.mode=disabled", "algo=dense,gtopk", "steps=1", "timeout_s=40"]  # fmt: skip
SOON_S = 30.0  # less than timeout_s, far less than both runs of the sweep may wait


def started(folder: Path, job: int, rank: int, size: int) -> forked_cli.Started:
    """Starts `repro run` with what srun sets on rank `rank`, in a working folder of its own: a machine of its own."""
    step = {"JOB_ID": job, "STEP_ID": 0, "PROCID": rank, "LOCALID": 0, "NODEID": rank, "STEP_NUM_TASKS": size,
            "STEP_NODELIST": "localhost", "STEP_TASKS_PER_NODE": f"1(x{size})"}  # fmt: skip
    none = {key: None for key in os.environ if key.startswith("SLURM_")}
    env = none | {f"SLURM_{name}": str(value) for name, value in step.items()}
    (folder / str(rank)).mkdir(exist_ok=True)
    return forked_cli.start("run", *SWEEP, f"nodes={size}", "results=out", cwd=folder / str(rank), **env)


def opened(port: int) -> None:
    """Waits for the door of rank 0."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            socket.create_connection(("localhost", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("rank 0 has no door")


@pytest.mark.parametrize(("refuses", "size"), [(0, 2), (1, 3)])
def test_ranks_that_come_late_learn_why_another_one_refused(refuses: int, size: int, tmp_path: Path) -> None:
    """Its store went with rank 0, and they knocked on its door for half an hour, in each run of the sweep anew."""
    (tmp_path / str(refuses)).mkdir()
    (tmp_path / str(refuses) / "out").touch()  # where its results should go is a file: on this machine alone
    job = 100_000 + os.getpid()
    early = [started(tmp_path, job, rank, size) for rank in range(size - 1)]
    late, said = [], []
    try:
        opened(environment.ports(job, 0)[0])
        time.sleep(1)
        late, began = [started(tmp_path, job, size - 1, size)], time.monotonic()
        said = ["".join(process.over(90)) for process in early + late]
        assert time.monotonic() - began < SOON_S, said
    finally:
        for process in early + late:
            process.kill()
    assert [process.returncode for process in early + late] == [2 if rank == refuses else 1 for rank in range(size)]
    cause = f"rank {refuses} did not start any run: The folder out"
    assert all((cause in text) == (rank != refuses) and "Traceback" not in text for rank, text in enumerate(said)), said


def test_ranks_that_were_told_to_stop_before_all_had_started_are_preempted(tmp_path: Path) -> None:
    """One TERM of scancel was called a second Ctrl-C and a failure, and the other ranks said `KeyboardInterrupt()`."""
    job = 100_000 + os.getpid()
    early = [started(tmp_path, job, rank, 3) for rank in range(2)]
    try:
        opened(environment.ports(job, 0)[0])
        time.sleep(2)
        assert early[0].process.pid is not None
        os.kill(early[0].process.pid, signal.SIGTERM)
        said = ["".join(process.over(SOON_S)) for process in early]
    finally:
        for process in early:
            process.kill()
    assert [process.returncode for process in early] == [130, 130], said
    assert "the same command goes on" in said[0]
    assert not any("Interrupt" in text or "a second Ctrl-C" in text for text in said), said
    assert not [*tmp_path.rglob("status.json")], "nothing had begun"
