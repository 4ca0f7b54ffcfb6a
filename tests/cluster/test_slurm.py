"""Manifests and sbatch calls: what is submitted, and that no value reaches a shell."""

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launched import SWEEP, UGLY, finish, launch, placed

from repro.cluster import slurm
from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.runs import lock, status


@pytest.fixture(scope="module")
def sweep():
    return compose(SWEEP)


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
    for text in ("hello", '{"config": []}', '{"config": null}', '"x"'):
        (tmp_path / "other").write_text(f"{text}\n")
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
