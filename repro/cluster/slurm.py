"""A sweep as SLURM arrays: one run per array task, one array per number of nodes.

A manifest is one JSON object a line, {"run": name, "config": resolved configuration}, read back by
`repro run --manifest FILE --line N`: no value passes through a shell, and what was submitted stays.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from repro import status
from repro.config import Config, ConfigError, RunError, from_dict
from repro.lock import Held, Lock

WAIT_S = 60.0  # for another `repro launch` of the same results folder


@dataclass(frozen=True)
class Array:
    """Runs of one resource shape. `folder` holds the manifest and will hold the logs."""

    nodes: int
    runs: tuple[Config, ...]
    folder: Path

    @property
    def name(self) -> str:
        """The job's name: by it `repro status` finds the manifest of a job in the queue."""
        return f"{status.JOB_PREFIX}{self.folder.name}-n{self.nodes}"

    @property
    def manifest(self) -> Path:
        return self.folder / f"n{self.nodes}.jsonl"

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.manifest.write_text("".join(line(config) + "\n" for config in self.runs))

    def command(self, options: list[str]) -> list[str]:
        """The sbatch call. `options` are the user's; what `repro status` relies on stands after them."""
        logs = str(self.folder.resolve()).replace("%", "%%")
        return [
            "sbatch", "--parsable", *options, f"--array=1-{len(self.runs)}", f"--ntasks={self.nodes}",
            f"--job-name={self.name}", f"--output={logs}/%A_%a.log", f"--chdir={Path.cwd()}",
            str(launchers() / "array.sbatch"), str(self.manifest.resolve()), sys.executable,
        ]  # fmt: skip


def launch(configs: list[Config], only: str | None, dry_run: bool, options: list[str]) -> Iterator[str]:
    """Submit what is neither done nor in the queue; yields lines for the user. Raises ConfigError, RunError.

    `only`: a state, and just the runs in it. Without sbatch: the manifests, and how to run them here.
    """
    if configs[0].tradeoff.bits_per_s:
        raise ConfigError(f"experiment={configs[0].experiment} trains nothing; type repro run in place of repro launch")
    results = Path(configs[0].results)
    if "\\" in str(results.resolve()):
        raise ConfigError(f"results={results}: SLURM cannot write logs to a path with a backslash; choose another")
    if dry_run:
        yield from _plan(configs, only, results, options)
        return
    with _alone(results / status.LAUNCHES):
        chosen = yield from _choose(configs, only, results)
        for array in chosen:
            array.write()
            if shutil.which("sbatch") is None:
                local = shlex.join([str(launchers() / "local.sh"), str(array.manifest)])
                yield f"no sbatch on this machine; run it here with: {local} 1"
            else:
                job = submit(array.command(options))
                logs = f"{array.folder}/{job}_*.log"
                yield f"job {job}: {len(array.runs)} runs of {array.nodes} nodes, logs {logs}"
    if chosen:
        yield f"repro status{_results_option(results)}"


def line(config: Config) -> str:
    """One line of a manifest: JSON escapes line ends, so it is one line whatever the values are."""
    return json.dumps({"run": f"{config.folder.parent.name}/{config.run_id}", "config": asdict(config)})


def read_line(manifest: Path, number: int) -> Config:
    """The configuration on line `number` (from 1) of a manifest. Raises ConfigError."""
    try:
        lines = manifest.read_text().rstrip("\n").split("\n")
    except OSError as error:
        raise ConfigError(f"{manifest}: {error.strerror}; `repro launch` writes manifests") from None
    if not 1 <= number <= len(lines):
        raise ConfigError(f"{manifest} has lines 1 to {len(lines)}, not {number}")
    try:
        return from_dict(json.loads(lines[number - 1])["config"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"line {number} of {manifest} is not of a manifest: submit with `repro launch`") from None


def launchers() -> Path:
    """launchers/ beside the package in a wheel's installation, one folder up in a checkout."""
    inside = Path(__file__).parent / "launchers"
    return inside if inside.is_dir() else inside.parent.parent / "launchers"


def submit(command: list[str]) -> str:
    """Call sbatch; returns the job's id. Raises RunError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"sbatch: {error}") from None
    if done.returncode:
        raise RunError(f"{done.stderr.strip() or 'sbatch failed'}; the command was: {shlex.join(command)}")
    return done.stdout.strip().partition(";")[0]


def _plan(configs: list[Config], only: str | None, results: Path, options: list[str]) -> Iterator[str]:
    for array in (yield from _choose(configs, only, results)):
        yield shlex.join(array.command(options))
        yield from (f"  {number}  {config.folder}" for number, config in enumerate(array.runs, 1))


def _choose(configs: list[Config], only: str | None, results: Path) -> Generator[str, None, list[Array]]:
    """Yields what is left out and why; returns the arrays of the rest."""
    states = status.states(configs, results)
    chosen = [c for c in configs if (states[c.folder] == only if only else states[c.folder] in status.OPEN)]
    for state in sorted(set(states.values())):
        count = sum(states[c.folder] == state for c in configs if c not in chosen)
        if count:
            yield f"{count} of {len(configs)} runs left out: {state}"
    return arrays(chosen, results / status.LAUNCHES / _stamp(results / status.LAUNCHES))


def arrays(configs: list[Config], folder: Path) -> list[Array]:
    """One array per resource shape, which is the number of nodes: all tasks of a SLURM array share one."""
    ordered = sorted(configs, key=lambda config: config.nodes)
    return [Array(nodes, tuple(runs), folder) for nodes, runs in groupby(ordered, lambda config: config.nodes)]


def _stamp(folder: Path) -> str:
    """A name for this launch that no earlier one in `folder` has."""
    now, number = time.strftime("%Y%m%d-%H%M%S"), 1
    while (folder / f"{now}.{number}").exists():
        number += 1
    return f"{now}.{number}"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Launches of one results folder take turns: the later sees in the queue what the earlier sent."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            lock = Lock(folder)
            break
        except Held:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
    try:
        yield
    finally:
        lock.release()


def _results_option(results: Path) -> str:
    return "" if str(results) == "results/runs" else " --results " + shlex.quote(str(results))
