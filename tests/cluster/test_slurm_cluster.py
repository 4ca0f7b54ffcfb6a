"""Arrays, preemption, a killed rank, a cancelled array: on a real SLURM that the fixture starts and ends."""

import dataclasses
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import slurm_cluster
from cli_process import torchrun
from slurm_sweep import ROOT, Sweep, same_bits

from repro.train import loop

pytestmark = pytest.mark.slurm

# Many short processes: synthetic data spare each of them the import of scikit-learn that digits need.
DATA = ["data=synthetic", "data.train_images=512", "data.test_images=16"]
TINY = [*DATA, "model=resnet20", "batch_per_node=4", "threads=1", "timeout_s=60", "wandb.mode=disabled"]
PATIENCE = 600  # seconds, on a machine that does other things too
OPTIONS = ["--", "--signal=USR2@30", "--time=30"]
UGLY = 'it\'s "a" $(touch pwned) ; b%A'  # the folder that everything of these tests is in


@pytest.fixture(scope="module")
def cluster():
    reason = slurm_cluster.why_not()
    if reason is not None:
        (pytest.fail if os.environ.get("REPRO_REQUIRE") == "1" else pytest.skip)(reason)
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as folder,
        slurm_cluster.started(Path(folder), cpus=2) as cluster,
    ):
        yield cluster


def test_an_array_survives_a_preemption_and_a_killed_rank(cluster, tmp_path):
    """Two runs of 2 and 3 ranks. One is told to stop and requeued, the other loses a rank.

    The failed one is launched again alone; both end done; one more launch finds nothing to do; and their bits
    are those of the same runs without SLURM.
    """
    home = tmp_path / UGLY
    home.mkdir()
    sweep = Sweep(cluster, home, [*TINY, "steps=40", "algo=gtopk", "nodes=2,3", "checkpoint_every=10"])
    stopped, struck = sweep.configs()

    printed = sweep.launch(*OPTIONS)
    assert "1 run of 2 nodes" in printed and "1 run of 3 nodes" in printed
    assert "job" not in sweep.launch(*OPTIONS)  # they are in the queue already

    sweep.wait_step(stopped, 3, PATIENCE)
    task = sweep.preempt(stopped)
    sweep.wait_step(struck, 12, PATIENCE)
    sweep.kill_rank(struck, 2)  # at once: the run is over within seconds
    cluster.wait_until(lambda: "requeued" in sweep.logs(), 60, f"{task} is requeued")
    cluster.wait_until(lambda: sweep.state(struck) == "failed", 30, "the killed rank ends its run")
    assert "rank 2" in sweep.status(struck)["error"]
    cluster.wait_empty(PATIENCE)

    assert (sweep.state(stopped), sweep.state(struck)) == ("done", "failed"), sweep.logs()
    assert "1 done, 1 failed" in sweep.repro("status")
    assert "resuming" in sweep.logs()

    assert "1 run of 3 nodes" in sweep.launch("--only", "failed", *OPTIONS)
    cluster.wait_empty(PATIENCE)
    assert "2 done" in sweep.repro("status")
    assert sweep.launch(*OPTIONS) == "2 of 2 runs left out: done\n"
    assert not list(tmp_path.rglob("pwned"))

    reference = tmp_path / "reference"
    for config in (stopped, struck):
        plain = dataclasses.replace(config, results=str(reference))
        assert loop.run(plain)["state"] == "done"
        assert same_bits(sweep.folder(config), plain.folder), config.run_id


def test_a_job_that_slurm_suspends_for_longer_than_a_collective_may_wait_goes_on(cluster, tmp_path):
    quick = [word for word in TINY if not word.startswith("timeout_s")]
    quick += ["data.image_size=8", "timeout_s=8"]
    sweep = Sweep(cluster, tmp_path, [*quick, "steps=300", "algo=gtopk", "nodes=2"], forked=True)
    (config,) = sweep.configs()
    sweep.launch(*OPTIONS)
    sweep.wait_step(config, 3, PATIENCE)
    task = sweep.task(config)
    cluster.run("scontrol", "suspend", task)
    time.sleep(1)
    before = sweep.step(config)
    time.sleep(12)
    assert sweep.step(config) == before < 300, "it is suspended"
    cluster.run("scontrol", "resume", task)
    cluster.wait_empty(PATIENCE)
    assert sweep.state(config) == "done" and "resuming" not in sweep.logs(), sweep.logs()


def test_a_cancelled_array_leaves_nothing_behind(cluster, tmp_path):
    """scancel ends running and waiting tasks: no process stays, nothing is requeued, and a launch goes on."""
    sweep = Sweep(cluster, tmp_path, [*TINY, "steps=100000", "seed=0,1,2", "nodes=2"], forked=True)
    job = sweep.launch(*OPTIONS, "--exclude=n[2-4]").split()[1].rstrip(":")  # one runs, two wait
    first = sweep.configs()[0]
    sweep.wait_step(first, 1, PATIENCE)
    tasks = list(cluster.queue())
    cluster.run("scancel", job)
    cluster.wait_empty(60)
    assert [sweep.ranks(task) for task in tasks] == [[]] * len(tasks)
    assert sweep.state(first) == "preempted", sweep.logs()
    assert "--array=1-3" in sweep.launch("--dry-run", *OPTIONS)


def test_more_runs_than_an_array_may_have_tasks(cluster, tmp_path):
    """sbatch refused the array, "Invalid job array specification", and nothing of the sweep was submitted."""
    sweep = Sweep(cluster, tmp_path, [*TINY, "steps=4", "seed=range(9)", "nodes=2"], forked=True)
    printed = sweep.launch(*OPTIONS, "--hold")
    assert "7 runs of 2 nodes" in printed and "2 runs of 2 nodes" in printed
    assert "9 pending" in sweep.repro("status")
    assert sweep.launch(*OPTIONS) == "9 of 9 runs left out: pending\n"
    cluster.run("scancel", "--me")
    cluster.wait_empty(60)


def test_stages_train_alike_under_srun_and_torchrun(cluster, tmp_path):
    """Two stages, a process each: the same bits whatever started them, and nothing to type for it."""
    piped = ["nodes=2", "stages=2", "cuts=[5]", "algo=gtopk", "steps=4"]
    sweep = Sweep(cluster, tmp_path, [*TINY, *piped], forked=True)
    (config,) = sweep.configs()
    sweep.launch(*OPTIONS)
    cluster.wait_empty(PATIENCE)
    assert sweep.state(config) == "done", sweep.logs()

    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*torchrun(2, tmp_path / "logs"), "-m", "repro", "run", *TINY, *piped, "results=torchrun"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    other = dataclasses.replace(config, results="torchrun")
    assert same_bits(sweep.folder(config), tmp_path / other.folder)
