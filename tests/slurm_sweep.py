"""A sweep on a private SLURM, driven as a person does: repro launch, repro status, scancel, and a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import forked_cli
from slurm_cluster import Cluster
from tiny_runs import bits, equal, latest

from repro.config.compose import compose
from repro.config.schema import Config
from repro.runs import run_folder, status_file

ROOT = Path(__file__).parent.parent


@dataclass
class Sweep:
    """`overrides` launched from the folder `home`; the run folders are below it."""

    cluster: Cluster
    home: Path
    overrides: list[str]
    forked: bool = False  # command lines are forks (forked_cli.py): a Python of its own takes each 3 s to start

    def configs(self) -> list[Config]:
        return compose(self.overrides)

    def folder(self, config: Config) -> Path:
        return self.home / config.folder

    def repro(self, *words: str) -> str:
        """`python -m repro WORDS` in `home`; returns what it printed. A non-zero exit is an error."""
        env = self.cluster.env | {"PYTHONPATH": str(ROOT)}
        if self.forked:
            done = forked_cli.repro(*words, cwd=self.home, **env)
        else:
            command = [sys.executable, "-m", "repro", *words]
            done = subprocess.run(command, cwd=self.home, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}\n{self.logs()}"
        return done.stdout

    def launch(self, *words: str) -> str:
        return self.repro("launch", *self.overrides, *words)

    def state(self, config: Config) -> str | None:
        return status_file.state(self.folder(config))

    def status(self, config: Config) -> dict:
        return json.loads((self.folder(config) / "status.json").read_text())

    def step(self, config: Config) -> int:
        """The last step that is on the disk."""
        steps = [line["step"] for line in run_folder.read_metrics(self.folder(config)) if line["kind"] == "step"]
        return steps[-1] if steps else 0

    def task(self, config: Config) -> str:
        """The array task that runs `config` now: JOB_TASK."""
        for job in self.cluster.queue():
            environment = [ranks[0] for ranks in [self.ranks(job)] if ranks]
            if environment and _line(environment[0]) == config.run_id:
                return job
        raise AssertionError(f"no task runs {config.run_id}: {self.cluster.queue()}\n{self.logs()}")

    def ranks(self, task: str) -> list[int]:
        """The processes of an array task, by rank."""
        job, _, index = task.partition("_")
        wanted = {f"SLURM_ARRAY_JOB_ID={job}", f"SLURM_ARRAY_TASK_ID={index}"}
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
                command = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if wanted <= set(environment) and b"repro" in command and b"srun" not in command[0]:
                values = dict(item.partition("=")[::2] for item in environment)
                if values.get("SLURM_CONF") == self.cluster.env["SLURM_CONF"] and "SLURM_PROCID" in values:
                    found[int(values["SLURM_PROCID"])] = int(folder.name)
        return [found[rank] for rank in sorted(found)]

    def wait_step(self, config: Config, step: int, seconds: float) -> None:
        self.cluster.wait_until(lambda: self.step(config) >= step, seconds, f"step {step} of {config.run_id}")

    def preempt(self, config: Config) -> str:
        """What SLURM does two minutes before the time limit; returns the task."""
        task = self.task(config)
        self.cluster.run("scancel", "--signal=USR2", task)
        return task

    def kill_rank(self, config: Config, rank: int) -> None:
        os.kill(self.ranks(self.task(config))[rank], signal.SIGKILL)

    def logs(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.home.rglob("*.log")))


def same_bits(one: Path, other: Path) -> bool:
    """Whether the last checkpoints of two run folders hold the same bits, every rank's state included."""
    steps = [latest(folder)[0] for folder in (one, other)]
    return steps[0] == steps[1] > 0 and equal(bits(one), bits(other))


def _line(pid: int) -> str:
    """The run id of the manifest's line that a rank's process was started with."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    manifest, line = Path(words[words.index("--manifest") + 1]), int(words[words.index("--line") + 1])
    return json.loads(manifest.read_text().split("\n")[line - 1])["run"].partition("/")[2]
