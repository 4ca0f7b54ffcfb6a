"""Manifests and sbatch calls: what is submitted, that no value reaches a shell, and what is left out."""

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.cli import app
from repro.cluster import slurm
from repro.config.compose import compose
from repro.config.schema import ConfigError, RunError
from repro.runs import lock, status, status_file
from repro.runs.lock import Lock

SWEEP = ["model=resnet20", "data=digits", "algo=dense,topk,gtopk", "nodes=4,2"]
UGLY = "a b'c\"d$(touch pwned);e\nf%A`touch pwned`*"


@pytest.fixture(scope="module")
def sweep():
    return compose(SWEEP)


def placed(configs, results: Path) -> list:
    return [dataclasses.replace(config, results=str(results)) for config in configs]


def finish(config, state: str = "done") -> None:
    config.folder.mkdir(parents=True)
    for name in ("config.yaml", "provenance.json"):
        (config.folder / name).write_text("")
    status_file.write(config.folder, state, 5, 5)


def test_one_array_per_number_of_nodes(sweep):
    arrays = list(slurm.arrays(sweep, Path("launches/now"), 1000))
    assert [(array.nodes, len(array.runs)) for array in arrays] == [(2, 3), (4, 3)]
    assert {config.folder for array in arrays for config in array.runs} == {config.folder for config in sweep}


def test_a_sweep_larger_than_an_array_is_several_each_with_its_manifest(sweep):
    arrays = list(slurm.arrays(sweep, Path("launches/now"), 2))
    assert [(array.name, array.manifest.name, len(array.runs)) for array in arrays] == [
        ("repro-now-n2", "n2.jsonl", 2),
        ("repro-now-n2.2", "n2.2.jsonl", 1),
        ("repro-now-n4", "n4.jsonl", 2),
        ("repro-now-n4.2", "n4.2.jsonl", 1),
    ]
    assert {config.folder for array in arrays for config in array.runs} == {config.folder for config in sweep}


@pytest.mark.parametrize("dry_run", [False, True])
def test_runs_of_two_results_folders_are_not_one_launch(sweep, dry_run, tmp_path):
    """The manifests stood under the first alone, and in the second nothing was known to be in the queue."""
    both = [*placed(sweep, tmp_path / "a"), *placed(sweep, tmp_path / "b")]
    with pytest.raises(ConfigError, match=f"launch each alone: results={tmp_path / 'a'}, for one"):
        list(slurm.launch(both, None, dry_run, [], status.states, lock.in_turn))
    assert not list(tmp_path.iterdir())


def test_golden_sbatch_call(sweep, monkeypatch):
    """What repro launch types. A change here changes what every user's cluster is asked for."""
    monkeypatch.chdir("/")
    array = list(slurm.arrays(sweep, Path("/data/100%/launches/20260101-120000.1"), 1000))[1]
    command = array.command(["--partition=gpu", "--time=1:00:00"])
    assert command[:-3] == [
        "sbatch",
        "--parsable",
        "--partition=gpu",
        "--time=1:00:00",
        "--array=1-3",
        "--ntasks=4",
        "--job-name=repro-20260101-120000.1-n4",
        "--output=/data/100%%/launches/20260101-120000.1/%A_%a.log",
        "--chdir=/",
    ]
    script, manifest, _ = command[-3:]
    assert Path(script).name == "array.sbatch" and Path(script).is_file()
    assert manifest == "/data/100%/launches/20260101-120000.1/n4.jsonl"


def test_golden_manifest(sweep, tmp_path):
    """One JSON object a line: the run's name, then all that the run is. Old manifests must stay readable."""
    array = list(slurm.arrays(sweep, tmp_path, 1000))[0]
    array.write()
    lines = array.manifest.read_text().split("\n")
    assert lines.pop() == "" and len(lines) == 3
    for number, (text, config) in enumerate(zip(lines, array.runs, strict=True), 1):
        item = json.loads(text)
        assert list(item) == ["run", "config"]
        assert item["run"] == f"default/{config.run_id}"
        assert item["config"]["algo"]["name"] == config.algo.name
        assert slurm.read_line(array.manifest, number) == config


def test_a_bad_line_is_the_users_error(sweep, tmp_path):
    array = list(slurm.arrays(sweep, tmp_path, 1000))[0]
    array.write()
    with pytest.raises(ConfigError, match="lines 1 to 3, not 4"):
        slurm.read_line(array.manifest, 4)
    with pytest.raises(ConfigError, match="No such file"):
        slurm.read_line(tmp_path / "none.jsonl", 1)
    (tmp_path / "other").write_text("hello\n")
    with pytest.raises(ConfigError, match="not of a manifest"):
        slurm.read_line(tmp_path / "other", 1)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is no text"):
        slurm.read_line(tmp_path / "binary", 1)


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(text | st.sampled_from([UGLY, "$(x)", "a;b", "a\nb", "'", '"', "\u2028", "-rf", "..", "../../x"]))
def test_no_text_escapes(text):
    """Whatever a value is: one line, read back unchanged, and the run stays inside the results folder."""
    config = compose(["data=digits", "model=resnet20"])[0] if not CACHE else CACHE[0]
    CACHE[:] = [config]
    ugly = dataclasses.replace(
        config,
        results=text,
        experiment=text,
        data=dataclasses.replace(config.data, root=text),
        wandb=dataclasses.replace(config.wandb, project=text),
    )
    line = slurm.line(ugly)
    assert len(line.splitlines()) == 1 and line.isascii()
    assert slurm.from_dict(json.loads(line)["config"]) == ugly
    inside = os.path.relpath(ugly.folder, text)
    assert not inside.startswith("..") and len(Path(inside).parts) == 2

    array = slurm.Array(2, (ugly,), Path(text) / "launches" / "now")
    command = array.command([f"--comment={text}"])
    assert shlex.split(shlex.join(command)) == command


CACHE: list = []


def launch(configs: list, only: str | None, dry_run: bool, options: list[str]) -> Iterator[str]:
    return slurm.launch(configs, only, dry_run, options, status.states, lock.in_turn)


def test_a_shell_reads_the_dry_run_back(sweep, tmp_path):
    """The printed command, pasted into bash, is the very call; nothing in it runs."""
    configs = placed(sweep, tmp_path / UGLY)
    lines = list(launch(configs, None, True, [f"--comment={UGLY}"]))
    printed = [line for line in lines if line.startswith("sbatch")]
    assert len(printed) == 2 and not (tmp_path / UGLY).exists()
    shown = subprocess.run(
        ["bash", "-c", printed[0].replace("sbatch", "printf '%s\\0'", 1)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    words = shown.stdout.split("\0")
    assert f"--comment={UGLY}" in words and "--ntasks=2" in words
    assert not list(tmp_path.rglob("pwned"))


def test_srun_is_asked_for_no_lab_and_starts_processes(monkeypatch):
    (threads,), (lab,) = compose(["nodes=4"]), compose(["nodes=4", "cluster=lab"])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert slurm.as_submitted(threads) is threads and slurm.as_submitted(lab) is lab
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert slurm.as_submitted(threads).cluster.name == "processes"
    with pytest.raises(ConfigError, match="type repro run in place of repro launch"):
        slurm.as_submitted(lab)
    (alone,) = compose(["nodes=1", "cluster=environment"])
    with pytest.raises(ConfigError, match="leave cluster=environment out"):
        slurm.as_submitted(alone)


@pytest.mark.parametrize("option", ["--array=1-9%2", "-J", "-n8", "--chdir=/scratch"])
def test_an_option_that_launch_gives_itself_is_refused(option, sweep, tmp_path):
    """sbatch would have taken the later one, without a word."""
    configs = placed(sweep, tmp_path)
    with pytest.raises(ConfigError, match=f"^{option}: .* leave it out"):
        list(launch(configs, None, True, ["--partition=gpu", option]))
    assert list(launch(configs, None, True, ["--ntasks-per-node=4", "-p", "gpu"]))


@pytest.mark.parametrize("option", ["--wait", "-W", "--test-only"])
def test_an_option_with_which_sbatch_does_not_answer_with_a_job_is_refused(option, sweep, tmp_path):
    """--wait ran into the timeout with its first array queued; --test-only printed a job that was none."""
    with pytest.raises(ConfigError, match=f"^{option}: with it sbatch does not answer .*leave it out"):
        list(launch(placed(sweep, tmp_path), None, True, [option]))
    assert list(launch(placed(sweep, tmp_path), None, True, ["--wait-all-nodes=1"]))


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
    assert any("--array=1-" in line for line in launch(configs, None, True, []))
    finish(configs[0])
    assert [run.state for run in status.survey(tmp_path / "runs")[0]] == ["done"]


def test_a_launch_from_inside_a_job_and_with_a_queue_told_otherwise_is_as_any_other(sweep, tmp_path, monkeypatch):
    """The array took the shell's cores and restarts for its own; squeue left out what waits, and it was sent again."""
    for program, text in (("squeue", "env > squeue.env"), ("sbatch", "env > sbatch.env; echo 1"), ("scontrol", "")):
        (tmp_path / program).write_text(f"#!/bin/sh\ncd {tmp_path}\n{text}\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    job = {"SLURM_CPU_BIND": "map_cpu:1", "SLURM_RESTART_COUNT": "3", "SQUEUE_STATES": "RUNNING", "SLURM_JOB_ID": "7"}
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
    for program, text in answers.items():
        (tmp_path / program).write_text(f"#!/bin/sh\ncd {tmp_path}\n{text}\n")
        (tmp_path / program).chmod(0o755)
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


def test_without_slurm_the_manifest_runs_here(sweep, tmp_path, monkeypatch):
    """No sbatch: launch says what to type. Typed, it reads every line; what is done is not run again."""
    (tmp_path / "bin").mkdir()
    for program in ("bash", "env", "seq", "xargs"):
        (tmp_path / "bin" / program).symlink_to(str(shutil.which(program)))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    configs = placed(sweep[:2], tmp_path / UGLY)
    hint = next(line for line in launch(configs, None, False, []) if "local.sh" in line)
    for config in configs:
        finish(config)
    paths = {"PYTHON": sys.executable, "PYTHONPATH": str(Path(slurm.__file__).parents[2])}
    typed = hint.partition(": ")[2]
    done = subprocess.run(["bash", "-c", typed], env={**os.environ, **paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is done already") == 1  # the first array's one run
    assert not list(tmp_path.rglob("pwned"))
