"""launchers/: the scripts that run the lines of a manifest."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from repro.cluster import slurm

HEARS_CTRL_C = """
import signal, sys, time

lines = open("lines", "a", buffering=1)

def handle(*_):
    print("saves", file=lines)
    signal.signal(signal.SIGINT, lambda *_: (print("stops at once", file=lines), sys.exit(130)))

signal.signal(signal.SIGINT, handle)
print("begun", file=lines)
time.sleep(60)
"""


def test_scripts_are_shell_and_short():
    for name in ("array.sbatch", "local.sh"):
        path = slurm.launchers() / name
        subprocess.run(["bash", "-n", str(path)], check=True)
        assert len(path.read_text().splitlines()) < 60
    directives = [line for line in path.with_name("array.sbatch").read_text().splitlines() if line[:7] == "#SBATCH"]
    words = " ".join(directives)
    assert all(word in words for word in ("--signal=USR2@120", "--requeue", "--open-mode=append", "%A_%a"))


def test_the_python_of_the_marked_lines_wins(tmp_path):
    script = (slurm.launchers() / "array.sbatch").read_text()
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$3"\n')
    (tmp_path / "srun").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": "1"}
    for edited, expected in (
        (script, "/launched/python"),
        (script.replace("# python=python ", "python=python "), "python"),
    ):
        done = subprocess.run(
            ["bash", "-s", "manifest", "/launched/python"], input=edited, env=env, capture_output=True, text=True
        )
        assert (done.stdout.strip(), done.stderr) == (expected, "")


def four_lines(folder: Path, does: str) -> tuple[list[str], dict[str, str]]:
    """local.sh on a manifest of four lines, and its environment, in which Python is a script that `does` something."""
    python, manifest = folder / "python", folder / "n2.jsonl"
    python.write_text(f"#!/usr/bin/env bash\n{does}\n")
    python.chmod(0o755)
    manifest.write_text("{}\n" * 4)
    return ["bash", str(slurm.launchers() / "local.sh"), str(manifest)], {**os.environ, "PYTHON": str(python)}


def test_a_run_that_is_killed_does_not_end_the_others(tmp_path):
    """xargs gave up at the first command that a signal ended."""
    command, env = four_lines(tmp_path, 'echo "line ${*: -1}"\n[[ ${*: -1} != 2 ]] || kill -9 $$')
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout.split("\n")[:4] == [f"line {number}" for number in range(1, 5)] and done.returncode != 0


def test_local_runs_as_many_at_a_time_as_it_is_told(tmp_path):
    """Each run waits for a second one to begin, and fails without."""
    second = "[[ $(ls begun-* | wc -l) -ge 2 ]]"
    does = f"touch begun-${{*: -1}}\nfor i in {{1..100}}; do {second} && exit 0; sleep 0.1; done; exit 1"
    command, env = four_lines(tmp_path, does)
    assert subprocess.run([*command, "2"], env=env, cwd=tmp_path).returncode == 0
    assert len(list(tmp_path.glob("begun-*"))) == 4


def test_who_ends_local_begins_no_other_run(tmp_path):
    """The script was gone, and the runs went on to begin one after the other."""
    command, env = four_lines(tmp_path, 'echo "line ${*: -1}" >>lines\nsleep 1')
    script = subprocess.Popen(command, env=env, cwd=tmp_path)
    while not (tmp_path / "lines").exists():
        time.sleep(0.02)
    script.terminate()
    script.wait()
    time.sleep(1.5)
    assert (tmp_path / "lines").read_text() == "line 1\n"


def test_ctrl_c_is_the_runs_to_hear(tmp_path):
    """xargs died of the first: the prompt was back while the run still saved, and a second one did not reach it."""
    (tmp_path / "run.py").write_text(HEARS_CTRL_C)
    command, env = four_lines(tmp_path, f"exec {sys.executable} {tmp_path}/run.py")
    script = subprocess.Popen(command, env=env, cwd=tmp_path, start_new_session=True)
    for told in (1, 2):
        while not (tmp_path / "lines").exists() or len((tmp_path / "lines").read_text().splitlines()) < told:
            time.sleep(0.02)
        assert script.poll() is None
        os.killpg(script.pid, signal.SIGINT)  # as a terminal does
    assert script.wait(30) != 0
    assert (tmp_path / "lines").read_text() == "begun\nsaves\nstops at once\n"


def test_local_finds_the_checkouts_own_python_and_says_what_to_type_without_one(tmp_path):
    """Outside the virtual environment it ended with `python: command not found`."""
    (tmp_path / "bin").mkdir()
    for program in ("bash", "env", "seq", "xargs"):
        (tmp_path / "bin" / program).symlink_to(str(shutil.which(program)))
    script, own = tmp_path / "my checkout/launchers/local.sh", tmp_path / "my checkout/.venv/bin/python"
    script.parent.mkdir(parents=True)
    shutil.copy(slurm.launchers() / "local.sh", script)
    manifest = tmp_path / "n2.jsonl"
    manifest.write_text("{}\n{}\n")
    command, outside = ["bash", str(script), str(manifest)], {"PATH": str(tmp_path / "bin")}
    done = subprocess.run(command, env=outside, capture_output=True, text=True)
    assert done.returncode == 2 and "type PYTHON=/path/to/venv/bin/python" in done.stderr
    own.parent.mkdir(parents=True)
    own.write_text('#!/usr/bin/env bash\necho "$@"\n')
    own.chmod(0o755)
    ran = [f"-m repro run --manifest {manifest} --line {number}" for number in (1, 2)]
    here = ["bash", "local.sh", str(manifest)]  # ended with `cd: local.sh/..: Not a directory`
    for typed, folder in ((command, Path("/")), (here, script.parent)):
        done = subprocess.run(typed, env=outside, capture_output=True, text=True, cwd=folder)
        assert (done.stdout.splitlines(), done.stderr) == (ran, "")
    manifest.write_text("{}\n{}")  # as an editor may leave it
    done = subprocess.run(command, env=outside, capture_output=True, text=True)
    assert (done.stdout.splitlines(), done.stderr) == (ran, "")
    manifest.write_text("")
    done = subprocess.run(command, env=outside, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    manifest.unlink()
    for folder in (False, True):
        done = subprocess.run(command, env=outside, capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.startswith(f"local.sh: there is no manifest {manifest}"), folder
        manifest.mkdir(exist_ok=True)
