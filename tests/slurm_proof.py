"""What docs/slurm.md quotes: a sweep on a real four-node SLURM, disturbed on purpose. Needs root.

uv run python tests/slurm_proof.py FOLDER     # for its run folders and logs
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import slurm_cluster
from slurm_sweep import ROOT, Sweep, same_bits

SWEEP = ["model=resnet20", "algo=dense,topk,gtopk", "nodes=2,4", "data=digits"]
SHORT = ["epochs=3", "checkpoint_every=10", "threads=1", "wandb.mode=disabled"]
OPTIONS = ["--", "--time=60"]
HOURS = 3600.0
LAUNCHES = 200


def main() -> None:
    home = Path(sys.argv[1]).resolve()
    home.mkdir(parents=True)
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as folder,
        slurm_cluster.started(Path(folder), cpus=2) as cluster,
    ):
        say(cluster.run("sinfo", "--noheader", "--format=%D nodes of %c CPUs, %T", check=True))
        disturbed(Sweep(cluster, home, SWEEP + SHORT))
        launched_often(Sweep(cluster, home, SWEEP + SHORT))
        launched_twice_at_once(Sweep(cluster, home, ["data=digits", "nodes=2", "seed=7,8", "steps=10", *SHORT]))


def disturbed(sweep: Sweep) -> None:
    """One task preempted, one rank killed, what failed launched again; all bits as without SLURM."""
    runs = {(config.algo.name, config.nodes): config for config in sweep.configs()}
    stopped, struck = runs["gtopk", 2], runs["topk", 4]
    say(f"$ repro launch {' '.join(SWEEP)} ...\n{sweep.launch(*OPTIONS)}")

    sweep.wait_step(stopped, 5, HOURS)
    say(f"USR2 to {sweep.preempt(stopped)}, {stopped.run_id}, after step {sweep.step(stopped)}")
    sweep.cluster.wait_until(lambda: "requeued" in sweep.logs(), HOURS, "a requeue")
    sweep.wait_step(struck, 12, HOURS)
    sweep.kill_rank(struck, 1)
    say(f"KILL to rank 1 of {struck.run_id} after step {sweep.step(struck)}")
    sweep.cluster.wait_until(lambda: sweep.state(struck) == "failed", 60, "the run has failed")
    say(f"its status.json: {sweep.status(struck)['error']}")
    sweep.cluster.wait_empty(HOURS)

    say(f"$ repro status\n{sweep.repro('status')}")
    say(f"$ repro launch ... --only failed\n{sweep.launch('--only', 'failed', *OPTIONS)}")
    sweep.cluster.wait_empty(HOURS)
    say(f"$ repro status\n{sweep.repro('status')}")
    resumed = [line for line in sweep.logs().splitlines() if line.startswith("resuming")]
    say("in the logs: " + "; ".join(resumed))
    assert all(sweep.state(config) == "done" for config in runs.values())

    plain = sweep.home / "without-slurm"
    sweep.repro("run", *SWEEP, *SHORT, f"results={plain}")
    for config in runs.values():
        assert same_bits(sweep.folder(config), plain / "default" / config.run_id), config.run_id
    say("all six: the last checkpoints are those of `repro run` without SLURM, to the bit, for every rank")


def launched_often(sweep: Sweep) -> None:
    """Launching a finished sweep changes nothing, however often, ten at a time."""
    before = contents(sweep)
    with ThreadPoolExecutor(10) as pool:
        printed = set(pool.map(lambda _: sweep.launch(*OPTIONS), range(LAUNCHES)))
    assert printed == {"6 of 6 runs left out: done\n"}
    assert contents(sweep) == before and not sweep.cluster.queue()
    say(f"{LAUNCHES} launches of the finished sweep: nothing submitted, no file of a run folder changed")


def launched_twice_at_once(sweep: Sweep) -> None:
    """Of two launches at the same moment, one submits a run; no run is started twice."""
    command = [sys.executable, "-m", "repro", "launch", *sweep.overrides, *OPTIONS]
    env = sweep.cluster.env | {"PYTHONPATH": str(ROOT)}
    both = [subprocess.Popen(command, cwd=sweep.home, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = "".join(process.communicate()[0] for process in both)
    assert printed.count("job ") == 1, printed
    sweep.cluster.wait_empty(HOURS)
    for config in sweep.configs():
        assert sweep.state(config) == "done"
        provenance = json.loads((sweep.folder(config) / "provenance.json").read_text())
        assert provenance["earlier"] == []
    say("two launches at once: one submitted, each run was started once and is done")


def contents(sweep: Sweep) -> dict[str, str]:
    """Every file of the sweep's run folders and its bytes."""
    files = [path for config in sweep.configs() for path in sweep.folder(config).rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def say(text: str) -> None:
    print(text.rstrip(), flush=True)


if __name__ == "__main__":
    main()
