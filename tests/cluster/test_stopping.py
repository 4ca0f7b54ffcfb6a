"""Ctrl-C, SIGTERM and SIGKILL, on real processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import forked_cli
import pytest

ROOT = Path(__file__).parents[2]
SMALL = ["data=synthetic", "data.train_images=128", "data.test_images=16", "data.image_size=8", "batch_per_node=4",
         "wandb.mode=disabled"]  # fmt: skip
RUN = [sys.executable, "-m", "repro", "run", *SMALL]
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
SIDES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def state(folder: Path) -> dict:
    (file,) = folder.rglob("status.json")
    return json.loads(file.read_text())


def running(folder: Path, *settings: str) -> subprocess.Popen:
    """A run of two nodes that goes on until it is told to stop, in its third step or later."""
    run = [*RUN, "nodes=2", "steps=100000", "evaluate_every=10000", f"results={folder}", *settings]
    process = subprocess.Popen(run, cwd=folder, env=HERE, start_new_session=True, **SIDES)
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if any('"step": 3,' in path.read_text() for path in folder.glob("*/*/metrics.jsonl")):
            return process
        time.sleep(0.1)
    process.kill()
    raise AssertionError(process.communicate()[1])


def over(process: subprocess.Popen) -> str:
    """What it said, once it and its ranks are gone."""
    try:
        _, said = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "Traceback" not in said and "frame #" not in said, said
    assert len(said.splitlines()) < 10, said
    return said


def members(group: int) -> list[tuple[int, int]]:
    """The processes of a group, each with its parent."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # a process that has ended since
            _, parent, its = stat.read_text().rsplit(")", 1)[1].split()[:3]
            if int(its) == group:
                found.append((int(stat.parent.name), int(parent)))
    return found


def test_ctrl_c_answers_at_once(tmp_path: Path) -> None:
    process = running(tmp_path, "cluster=local")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all processes of the group
    time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    said = over(process)
    assert "; Ctrl-C again to stop now" in said and "same command goes on" in said
    assert process.returncode == 130
    assert re.search(r"stopping after step \d+0;", said)


def test_a_second_ctrl_c_waits_for_no_rank(tmp_path: Path) -> None:
    """One that stands still never agrees on the step after which all stop."""
    process = running(tmp_path, "cluster=processes", "timeout_s=1000")
    frozen = next(one for one, parent in members(process.pid) if parent not in (process.pid, os.getpid()))
    os.kill(frozen, signal.SIGSTOP)
    os.killpg(process.pid, signal.SIGINT)
    assert process.stderr is not None
    assert any("; Ctrl-C again to stop now" in line for line in process.stderr)
    os.killpg(process.pid, signal.SIGINT)
    assert "same command goes on" in over(process)
    assert process.returncode == 130


def test_a_second_ctrl_c_that_the_ranks_alone_took_stops_now(tmp_path: Path) -> None:
    """Signals of one number that wait for a busy process are one: it said that the ranks were ended from outside."""
    process = running(tmp_path, "cluster=processes")
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.05)
    for number, _ in members(process.pid):
        if number != process.pid:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGINT)
    said = over(process)
    assert "ended from outside" not in said and "same command goes on" in said
    assert process.returncode == 130


def test_sigterm_to_the_whole_group_saves_and_stops(tmp_path: Path) -> None:
    """As `timeout` and systemd send it: also to what starts the ranks, and to what looks after their memory.

    Ranks in one process get it in the next test.
    """
    process = running(tmp_path, "cluster=processes")
    os.killpg(process.pid, signal.SIGTERM)
    said = over(process)
    assert state(tmp_path)["state"] == "preempted", said
    assert process.returncode == 130 and "same command goes on" in said, said


def test_a_lost_terminal_saves_and_stops_but_not_under_nohup(tmp_path: Path) -> None:
    """It ended the run where it was, with a status that said `running`."""
    process = running(tmp_path)
    os.killpg(process.pid, signal.SIGHUP)
    said = over(process)
    assert state(tmp_path)["state"] == "preempted" and process.returncode == 130, said
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # programs that are started inherit that
    try:
        (tmp_path / "next").mkdir()
        process = running(tmp_path / "next")
    finally:
        signal.signal(signal.SIGHUP, before)
    os.killpg(process.pid, signal.SIGHUP)
    time.sleep(1)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGTERM)
    said = over(process)
    assert state(tmp_path / "next")["state"] == "preempted", said
    assert process.returncode == 130 and "same command goes on" in said, said


@pytest.mark.lab
def test_a_measurement_of_stated_compute_stops_between_two_iterations(tmp_path: Path) -> None:
    """It went through all of them, and threw them away."""
    words = ["cluster=lab", "node=stated", "compute_s=0.1", "network.bits_per_s=1e7", "model=resnet20", "algo=dense"]
    run = [*RUN, *words, "nodes=2", "steps=100", f"results={tmp_path}"]  # two seconds each
    process = subprocess.Popen(run, cwd=tmp_path, env=HERE, start_new_session=True, **SIDES)
    end = time.monotonic() + 120
    while not list(tmp_path.glob("*/*/status.json")) and time.monotonic() < end and process.poll() is None:
        time.sleep(0.1)
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    said = over(process)
    assert process.returncode == 130 and state(tmp_path)["state"] == "preempted", said


SWEEP = """
import os, signal, sys
from repro.config.compose import compose
from repro.train import sweep

def told(config, rank, data):
    if rank.number == rank.size - 1:
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    return []

if __name__ == "__main__":
    sys.exit(sweep.run(compose(sys.argv[2:]), told, sys.argv[2:]))
"""
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@pytest.mark.parametrize(("launcher", "name", "code"), [([], "SIGTERM", 130), (TORCHRUN, "SIGUSR2", 0)])
def test_a_signal_after_the_last_agreement_keeps_the_next_runs_from_starting(
    launcher: list[str], name: str, code: int, tmp_path: Path
) -> None:
    """Runs of fewer steps than lie between two agreements ignored it; under torchrun it reaches one rank alone."""
    (tmp_path / "sweep.py").write_text(SWEEP)
    words = [*SMALL, "nodes=2", "steps=5", "algo=dense,topk", "threads=1", f"results={tmp_path}"]
    run = [sys.executable, *launcher, str(tmp_path / "sweep.py"), name, *words]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=HERE)
    assert done.returncode == code, done.stderr
    assert state(tmp_path)["state"] == "done", "the one that ran"
    assert done.stderr.count("Stopped as asked; the same command goes on from here.") == 1, done.stderr
    # ranks of torchrun do not know the command that started them
    offered = "says how the runs stand" if launcher else "goes on with what is not done"
    assert "not begun" in done.stdout and offered in done.stdout


def ranks_of(launcher: int) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "stat").read_text().rpartition(")")[2].split()
            if os.getsid(int(process.name)) == launcher and int(words[1]) != launcher and int(process.name) != launcher:
                found.append(int(process.name))
        except OSError:
            continue
    return sorted(found)


def test_sigterm_to_one_rank_and_a_killed_rank_are_told_as_what_they_were(tmp_path: Path) -> None:
    process = running(tmp_path, "cluster=processes")
    os.kill(ranks_of(process.pid)[-1], signal.SIGTERM)
    assert re.search("rank [01] was told to stop by SIGTERM", over(process))
    assert process.returncode == 130 and state(tmp_path)["state"] == "preempted"
    (tmp_path / "next").mkdir()
    process = running(tmp_path / "next", "cluster=processes")
    os.kill(ranks_of(process.pid)[-1], signal.SIGKILL)
    assert "was killed (signal 9), as the kernel does when memory runs out" in over(process)
    assert process.returncode == 1


def srun(rank: int) -> dict[str, str]:
    """What srun gives to each of two tasks on this machine."""
    names = {"JOB_ID": 77, "STEP_ID": os.getpid(), "PROCID": rank, "LOCALID": rank, "NTASKS": 2, "STEP_NUM_TASKS": 2,
             "STEP_NODELIST": "localhost", "NODEID": 0, "STEP_TASKS_PER_NODE": 2}  # fmt: skip
    return {f"SLURM_{name}": str(value) for name, value in names.items()}


def test_a_sweep_whose_rank_is_killed_ends_there(tmp_path: Path) -> None:
    """Each of the other runs waited `timeout_s`, half an hour, for a rank that could not come back."""
    words = ["algo=dense,topk,gtopk", "nodes=2", "steps=100000", "evaluate_every=10000", "results=runs"]
    ranks = [forked_cli.start("run", *SMALL, *words, cwd=tmp_path, **srun(rank)) for rank in range(2)]
    try:
        end = time.monotonic() + 120
        while not any('"step": 3,' in path.read_text() for path in tmp_path.glob("runs/*/*/metrics.jsonl")):
            assert time.monotonic() < end and ranks[0].returncode is None
            time.sleep(0.1)
        ranks[1].kill()
        _, err = ranks[0].over(90)
    finally:
        for process in ranks:
            process.kill()
    assert ranks[0].returncode == 1 and "rank 1 is gone" in err and "did not start" not in err
    assert "without that rank none of the other runs can begin" in err
    assert len(list(tmp_path.glob("runs/*/*"))) == 1
