"""What a launch leaves out, by the states of runs and by the queue, and what `repro status` says of what it sent."""

import dataclasses
import hashlib
import json
import os
import shlex
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import own_mounts
import pytest
from launched import SWEEP, finish, launch, placed

from repro.cli import app
from repro.cluster import slurm
from repro.config.compose import compose
from repro.config.schema import ConfigError, RunError
from repro.runs import metrics, status, status_file
from repro.runs.lock import Lock


@pytest.fixture(scope="module")
def sweep():
    return compose(SWEEP)


def programs(folder, answers):
    """Writes programs, each with what it answers in a shell that is in this folder."""
    for name, text in answers.items():
        (folder / name).write_text(f"#!/bin/sh\ncd {folder}\n{text}\n")
        (folder / name).chmod(0o755)


def test_a_launched_run_that_may_not_be_read_is_listed_and_ends_no_list():
    """PermissionError: nobody saw the state of any run beside it."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own are not for other users
        results = Path(name)
        results.chmod(0o755)
        theirs, ours = ([*compose(["nodes=1", f"results={name}", f"seed={seed}"])][0] for seed in (0, 1))
        manifest = results / "launches" / "one" / "n1.jsonl"
        manifest.parent.mkdir(parents=True)
        manifest.write_text("".join(slurm.line(one) + "\n" for one in (theirs, ours)))
        theirs.folder.mkdir(parents=True)
        theirs.folder.chmod(0o700)

        def lists():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            runs = {run.name: run for run in status.survey(results)[0]}
            return len(runs) == 2 and "it may not be read" in status.table(list(runs.values()))

        assert own_mounts.holds(lists)


def test_a_manifest_is_run_where_it_was_made(tmp_path, monkeypatch):
    """Its relative places were taken from where local.sh was typed: a run trained in another folder, without a word."""
    monkeypatch.chdir(tmp_path)
    manifest = tmp_path / "results" / "runs" / "launches" / "one" / "n1.jsonl"
    manifest.parent.mkdir(parents=True)
    (config,) = compose(["nodes=1"])
    manifest.write_text(json.dumps({"config": dataclasses.asdict(config)}) + "\n")
    assert slurm.read_line(manifest, 1) == config
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=f"another folder here; type `cd {tmp_path}` first$"):
        slurm.read_line(manifest, 1)


def test_a_manifest_names_the_folder_that_a_run_has(tmp_path):
    """A run begun under its older name was submitted again while its job was in the queue."""
    words = ["experiment=convergence", "model=resnet20", "seed=0", "precision=bfloat16", "algo=gtopk"]
    (config,) = compose([*words, f"results={tmp_path}"])
    begun = "convergence/resnet20-cifar10-gtopk-d0.001-n4-s0-4f16328b"
    (tmp_path / begun).mkdir(parents=True)
    assert json.loads(slurm.line(config))["run"] == begun


def test_done_runs_are_left_out_and_only_picks_a_state(sweep, tmp_path):
    configs = placed(sweep, tmp_path)
    finish(configs[0])
    finish(configs[1], "failed")

    def planned(only):
        lines = list(launch(configs, only, True, []))
        return {str(c.folder) for c in configs if any(str(c.folder) in line for line in lines)}

    assert planned(None) == {str(c.folder) for c in configs[1:]}
    assert planned("failed") == {str(configs[1].folder)}
    assert planned("preempted") == set()


def test_a_done_run_whose_metrics_were_changed_is_launched_again(sweep, tmp_path):
    """Of equal length it was left out, where `repro run` trains it again."""
    config = placed(sweep, tmp_path)[0]
    finish(config)
    (config.folder / "metrics.jsonl").write_text("{}\n")
    reached = metrics.Position(3, hashlib.sha256(b"{}\n").hexdigest())
    status_file.write(config.folder, "done", 5, 5, reached=reached)
    assert status.states([config], tmp_path, False)[0][config.folder] == "done"
    (config.folder / "metrics.jsonl").write_text("[]\n")
    assert status.states([config], tmp_path, False)[0][config.folder] == "failed" == status_file.state(config.folder)


def test_launches_of_a_finished_sweep_leave_it_as_it_is(sweep, tmp_path):
    configs = placed(sweep, tmp_path)
    for config in configs:
        finish(config)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for _ in range(20):
        assert list(launch(configs, None, False, [])) == ["6 of 6 runs left out: done"]
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: text for path, text in after.items() if slurm.LAUNCHES not in path.parts} == before
    assert not list(tmp_path.rglob("*.jsonl"))


def test_states(sweep, tmp_path):
    """A dead owner's `running` is a failure, a live one's is not; the queue speaks for what nobody runs."""
    config = placed(sweep, tmp_path)[0]
    folder = config.folder
    assert status.run(folder, None).state == "new"
    assert status.run(folder, status.Job("pending")).state == "pending"
    finish(config, "running")
    assert status.run(folder, None).state == "failed" and "killed" in status.run(folder, None).error
    lock = Lock(folder)
    assert status.run(folder, None).state == "running"
    lock.release()
    status_file.write(folder, "preempted", 3, 5)
    assert status.run(folder, None).state == "preempted"
    assert status.run(folder, status.Job("pending")).state == "pending"
    status_file.write(folder, "done", 5, 5)
    assert status.run(folder, status.Job("running")).state == "done"
    (folder / "metrics.jsonl").write_text('{"kind": "eval", "test_accuracy": 0.5}\n{"kind": "step", "loss": 1')
    shown = status.table(status.survey(tmp_path)[0])
    assert "accuracy (%)" in shown and "50.0" in shown and "5/5" in shown and shown.endswith("1 done")
    assert status.survey(tmp_path, "other")[0] == []


def test_a_queue_that_does_not_answer_submits_nothing(sweep, tmp_path, monkeypatch):
    """A controller that was busy for a moment looked like an empty queue, and all that waited was submitted again."""
    for program, text in (("squeue", "echo 'Socket timed out' >&2; exit 1"), ("sbatch", "echo 1")):
        (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    configs = placed(sweep, tmp_path / "runs")
    with pytest.raises(RunError, match="squeue: Socket timed out.*try again"):
        list(launch(configs, None, False, []))
    planned = list(launch(configs, None, True, []))
    assert any("--array=1-" in line for line in planned)
    assert "squeue: Socket timed out; what waits in the queue is not known" in planned
    finish(configs[0])
    assert [run.state for run in status.survey(tmp_path / "runs")[0]] == ["done"]


@pytest.mark.parametrize("option", ["-M b", "-Mb", "--clusters=b", ""])
def test_a_launch_onto_a_cluster_that_squeue_is_not_asked_about_is_refused(option, sweep, tmp_path, monkeypatch):
    """What waited there was not seen, and the same command submitted it again."""
    if not option:
        monkeypatch.setenv("SBATCH_CLUSTERS", "b")
    with pytest.raises(ConfigError, match="leave it out and type: export SLURM_CLUSTERS=NAME"):
        list(launch(placed(sweep, tmp_path / "runs"), None, True, option.split()))


def test_a_launch_from_inside_a_job_and_with_a_queue_told_otherwise_is_as_any_other(sweep, tmp_path, monkeypatch):
    """The array took the shell's cores and restarts for its own; squeue left out what waits, and it was sent again."""
    for program, text in (("squeue", "env > squeue.env"), ("sbatch", "env > sbatch.env; echo 1"), ("scontrol", "")):
        (tmp_path / program).write_text(f"#!/bin/sh\ncd {tmp_path}\n{text}\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    job = {"SLURM_CPU_BIND": "map_cpu:1", "SLURM_RESTART_COUNT": "3", "SQUEUE_STATES": "RUNNING", "SLURM_JOB_ID": "7"}
    job["SBATCH_WAIT"] = "1"  # sbatch answered when the array had ended, or not in time, after it was submitted
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SBATCH_PARTITION": "gpu", "OMP_NUM_THREADS": "2"}
    for name, value in (job | kept).items():
        monkeypatch.setenv(name, value)
    list(launch(placed(sweep, tmp_path / "runs"), None, False, []))
    for program in ("squeue", "sbatch"):
        told = (tmp_path / f"{program}.env").read_text().splitlines()
        assert {f"{name}={value}" for name, value in kept.items()} <= set(told)
        assert not {f"{name}={value}" for name, value in job.items()} & set(told), program


def test_launches_of_one_second_into_two_folders_have_two_names(sweep, tmp_path, monkeypatch):
    """One name stood for both, so that what waited for one folder was taken to wait for the other, and never sent."""
    monkeypatch.setattr(slurm.time, "strftime", lambda _: "20261129-082217")
    names = [
        next(line for line in launch(placed(sweep, tmp_path / folder), None, True, []) if line.startswith("sbatch"))
        for folder in ("a", "b")
    ]
    (first,), (second,) = (
        [word for word in shlex.split(text) if word.startswith("--job-name=repro-20261129-082217-")] for text in names
    )
    assert first != second


def test_a_launched_run_that_never_began_is_listed(sweep, tmp_path, monkeypatch, capsys):
    """Where all tasks died at once, `repro status` said that there were no runs."""
    answers = {"squeue": "cat queue 2>&1 && [ ! -s queue ]", "sbatch": "echo 1", "scontrol": "echo MaxArraySize=1001"}
    programs(tmp_path, answers)
    (tmp_path / "queue").touch()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    configs = placed(sweep, tmp_path / "runs")
    list(launch(configs, None, False, []))
    found, problem = status.survey(tmp_path / "runs")
    assert {run.name for run in found} == {f"{c.folder.parent.name}/{c.run_id}" for c in configs} and not problem
    assert all(run.state == "new" and "neither begun nor in the queue: see" in run.error for run in found)
    finish(configs[0])
    assert sorted(run.state for run in status.survey(tmp_path / "runs")[0]) == ["done"] + ["new"] * (len(configs) - 1)
    (tmp_path / "queue").write_text("Socket timed out")
    found, problem = status.survey(tmp_path / "runs")
    assert problem and not any(run.error for run in found), "what waits is not known"
    app(["status", "--results", str(tmp_path / "runs")], standalone_mode=False)
    assert "what waits in the queue is not known" in capsys.readouterr().out


def test_two_launches_at_once_submit_a_sweep_once(sweep, tmp_path, monkeypatch):
    """The later one waits for its turn, and then sees in the queue what the earlier sent."""
    names = (
        """name=${arg#--job-name=}; [ "$name" != "$arg" ] && for i in 1 2 3; do echo "$name|$i|PENDING|None"; done"""
    )
    answers = {
        "squeue": "cat queue",
        "sbatch": f'sleep 0.5; echo >> sent; for arg in "$@"; do {names}; done >> queue; echo 1',
        "scontrol": "echo MaxArraySize=1001",
    }
    programs(tmp_path, answers)
    (tmp_path / "queue").touch()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    configs = placed(sweep, tmp_path / "runs")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: list(launch(configs, None, False, [])), range(2))
    assert len((tmp_path / "sent").read_text().split("\n")) - 1 == 2, "an array for 2 nodes, one for 4"
    waits = ["6 of 6 runs left out: pending"]
    assert (first == waits) != (second == waits)


def test_a_watched_sweep_is_let_go_once_it_has_ended(sweep, tmp_path, monkeypatch, capsys):
    config, looks = placed(sweep, tmp_path)[0], list[float]()
    finish(config, "running")
    owner = Lock(config.folder)

    def ends(seconds: float) -> None:
        looks.append(seconds)
        status_file.write(config.folder, "done", 5, 5)
        owner.release()

    monkeypatch.setattr("repro.commands.status.time.sleep", ends)
    app(["status", "--watch", "--results", str(tmp_path)], standalone_mode=False)
    assert looks == [5] and "1 done" in capsys.readouterr().out


def test_the_time_left_is_at_the_pace_since_the_last_start(tmp_path: Path) -> None:
    """Steps of before a resume take no seconds of this start."""
    (tmp_path / "provenance.json").write_text(json.dumps({"start": "2026-01-01T00:00:00", "resumed_at": 50}))
    now = {"updated": "2026-01-01T00:00:10", "step": 60, "steps": 100}
    assert status._eta(tmp_path, now) == 40.0 and status._eta(tmp_path, now | {"step": 50}) is None
