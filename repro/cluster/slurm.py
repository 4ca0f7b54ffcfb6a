"""Submits a sweep as SLURM arrays: one run per array task, one array per number of nodes, or several of a large sweep.

A manifest has one JSON object per line, {"run": name, "config": resolved configuration}, which
`repro run --manifest FILE --line N` reads back: no value passes through a shell, and a record of the launch stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path

from repro.cluster import environment
from repro.config.schema import Config, ConfigError, RunError, from_dict
from repro.json_text import json_text
from repro.screen import plural
from repro.whole_files import write_whole

LAUNCHES = "launches"  # the folder in RESULTS that keeps manifests and logs
JOB_PREFIX = "repro-"
OPEN = ("failed", "preempted", "new")  # states of runs that are to be submitted
SLURMS_ARRAY = 1001  # MaxArraySize where a cluster sets none
OWN = ("--array", "--ntasks", "--job-name", "--output", "--chdir", "-a", "-n", "-J", "-o", "-D")  # options of sbatch
ELSEWHERE = ("--clusters", "--cluster", "-M")
OTHER_ANSWERS = ("--wait", "-W", "--test-only", "--help", "-h", "--usage", "--version", "-V")  # in place of a job's id

# of the runs in their folders, and why what waits is not known; True: to submit
States = Callable[[Iterable[Config], Path, bool], tuple[dict[Path, str], str]]
Turn = Callable[[Path], AbstractContextManager[None]]  # one at a time in a folder


@dataclass(frozen=True)
class Array:
    """Runs of one resource shape, or part of them, from 1. `folder` holds the manifest and will hold the logs."""

    nodes: int
    runs: tuple[Config, ...]
    folder: Path
    part: int = 1

    @property
    def shape(self) -> str:
        return f"n{self.nodes}" if self.part == 1 else f"n{self.nodes}.{self.part}"

    @property
    def name(self) -> str:
        """Returns the job's name, by which `repro status` finds the manifest of a job in the queue."""
        return f"{JOB_PREFIX}{self.folder.name}-{self.shape}"

    @property
    def manifest(self) -> Path:
        return self.folder / f"{self.shape}.jsonl"

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.manifest, "".join(line(config) + "\n" for config in self.runs))

    def command(self, options: list[str]) -> list[str]:
        """Returns the sbatch command. `options` are the user's; what `repro status` relies on comes after them."""
        logs = str(self.folder.resolve()).replace("%", "%%")
        return [
            "sbatch", "--parsable", *options, f"--array=1-{len(self.runs)}", f"--ntasks={self.nodes}",
            f"--job-name={self.name}", f"--output={logs}/%A_%a.log", f"--chdir={Path.cwd()}",
            str(launchers() / "array.sbatch"), str(self.manifest.resolve()), sys.executable,
        ]  # fmt: skip


def launch(
    configs: list[Config], only: str | None, dry_run: bool, options: list[str], states: States, turn: Turn
) -> Iterator[str]:
    """Submits the runs neither done nor in the queue; yields lines for the user. Raises ConfigError, RunError.

    `only` limits it to the runs in that state. Without sbatch, it writes the manifests and says how to run them here.
    Launches of one results folder take turns: the later sees in the queue what the earlier sent.
    """
    if own := _given(options, OWN):
        raise ConfigError(f"{own[0]}: repro launch gives sbatch this option itself; leave it out")
    if other := [text for text in options if text.partition("=")[0] in OTHER_ANSWERS]:
        raise ConfigError(f"{other[0]}: with it sbatch does not answer with the job's id at once; leave it out")
    if (away := _given(options, ELSEWHERE)) or environment.sbatch_goes_elsewhere():
        raise ConfigError(
            f"{away[0] if away else 'SBATCH_CLUSTERS'}: squeue would not see there what waits, and all would be "
            "submitted again; leave it out and type: export SLURM_CLUSTERS=NAME"
        )
    if len(places := dict.fromkeys(config.results for config in configs)) > 1:
        raise ConfigError(
            f"results={','.join(places)}: repro launch keeps what it submits in one results folder, where repro status "
            f"looks for it; launch each alone: results={next(iter(places))}, for one"
        )
    results = Path(configs[0].results)
    if "\\" in str(results.resolve()):
        raise ConfigError(f"results={results}: SLURM cannot write logs to a path with a backslash; choose another")
    if dry_run:
        yield from _plan(configs, only, results, options, states)
        return
    with turn(results / LAUNCHES):
        sbatch = shutil.which("sbatch")
        chosen = yield from _choose(configs, only, results, states, submitting=sbatch is not None)
        for array in chosen:
            array.write()
            if sbatch is None:
                local = shlex.join([str(launchers() / "local.sh"), str(array.manifest)])
                yield f"no sbatch on this machine; run it here with: {local} 1"
            else:
                job = submit(array.command(options))
                logs = f"{array.folder}/{job}_*.log"
                yield f"job {job}: {plural(len(array.runs), 'run')} of {plural(array.nodes, 'node')}, logs {logs}"
    if chosen:
        yield f"repro status{_results_option(results)}"


def _given(options: list[str], names: tuple[str, ...]) -> list[str]:
    """Returns the options of these names, each as --name=value, -n value or -nvalue."""
    return [text for text in options if text.partition("=")[0] in names or text[:2] in names]


def as_submitted(config: Config) -> Config:
    """Returns `config` with the ranks that srun will start, processes; without sbatch they are what it says.

    Raises ConfigError for ranks that srun cannot start.
    """
    if shutil.which("sbatch") is None:
        return config
    if config.cluster.name == "lab":
        raise ConfigError(
            "cluster=lab starts its ranks itself, on one machine; type repro run in place of repro launch"
        )
    if config.cluster.name == "environment" and config.nodes == 1:  # a step of one task is no environment
        raise ConfigError("nodes=1: one rank joins no others; leave cluster=environment out")
    if config.cluster.name != "local":
        return config
    return replace(config, cluster=replace(config.cluster, name="processes"))


def line(config: Config) -> str:
    """Returns one line of a manifest: JSON escapes line ends, so it is one line whatever the values are."""
    return json_text({"run": f"{config.folder.parent.name}/{config.folder.name}", "config": asdict(config)})


def read_line(manifest: Path, number: int) -> Config:
    """Returns the configuration on line `number` (from 1) of a manifest. Raises ConfigError."""
    try:
        lines = manifest.read_text().rstrip("\n").split("\n")
    except OSError as error:
        raise ConfigError(f"{manifest}: {error.strerror}; `repro launch` writes manifests") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{manifest} is no text; `repro launch` writes manifests") from None
    if not 1 <= number <= len(lines):
        raise ConfigError(f"{manifest} has lines 1 to {len(lines)}, not {number}")
    try:
        config = from_dict(json.loads(lines[number - 1])["config"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"line {number} of {manifest} is not of a manifest: submit with `repro launch`") from None
    place = manifest.resolve().parent.parent  # of launches
    if place.name == LAUNCHES and not Path(config.results).is_absolute():
        there = Path(str(place.parent).removesuffix(f"/{config.results}"))
        if there != place.parent and there != Path.cwd().resolve():
            raise ConfigError(
                f"{manifest} was made in {there}, and its results={config.results} would be another folder here; "
                f"type `cd {shlex.quote(str(there))}` first"
            )
    return config


def launchers() -> Path:
    """Returns the folder launchers/: inside the package in a wheel's installation, beside it in a checkout."""
    inside = Path(__file__).parents[1] / "launchers"
    return inside if inside.is_dir() else inside.parent.parent / "launchers"


def submit(command: list[str]) -> str:
    """Calls sbatch and returns the job's id. Raises RunError."""
    try:
        env = environment.outside_of_jobs()
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"sbatch: {error}") from None
    if done.returncode:
        raise RunError(f"{done.stderr.strip() or 'sbatch failed'}; the command was: {shlex.join(command)}")
    return done.stdout.strip().partition(";")[0]


def _plan(configs: list[Config], only: str | None, results: Path, options: list[str], states: States) -> Iterator[str]:
    for array in (yield from _choose(configs, only, results, states)):
        yield shlex.join(array.command(options))
        yield from (f"  {number}  {config.folder}" for number, config in enumerate(array.runs, 1))


def _choose(
    configs: list[Config], only: str | None, results: Path, states: States, submitting: bool = False
) -> Generator[str, None, list[Array]]:
    """Yields what is left out and why; returns the arrays of the rest."""
    found, problem = states(configs, results, submitting)
    chosen = [c for c in configs if (found[c.folder] == only if only else found[c.folder] in OPEN)]
    if problem and chosen:
        yield f"squeue: {problem}; what waits in the queue is not known"
    left_out = Counter(found[c.folder] for c in configs)
    left_out.subtract(found[c.folder] for c in chosen)
    for state, count in sorted(left_out.items()):
        if count:
            yield f"{count} of {len(configs)} runs left out: {state}"
    return list(arrays(chosen, results / LAUNCHES / _stamp(results / LAUNCHES), largest_array()))


def arrays(configs: list[Config], folder: Path, largest: int) -> Iterator[Array]:
    """Yields the arrays, of at most `largest` runs, of each resource shape, which all tasks of a SLURM array share.

    The shape is the number of nodes.
    """
    ordered = sorted(configs, key=lambda config: config.nodes)
    for nodes, group in groupby(ordered, lambda config: config.nodes):
        runs = tuple(group)
        for part, first in enumerate(range(0, len(runs), largest), 1):
            yield Array(nodes, runs[first : first + largest], folder, part)


def largest_array() -> int:
    """Returns how many tasks, from 1, this cluster's arrays may have: an index stays below its MaxArraySize."""
    try:
        done = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return SLURMS_ARRAY - 1
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", done.stdout, re.MULTILINE)
    return max(1, int(found[1] if found else SLURMS_ARRAY) - 1)


def _stamp(folder: Path) -> str:
    """Returns a name for this launch that no earlier one in `folder` has, nor one of this second in another folder."""
    place = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:6]
    now, number = f"{time.strftime('%Y%m%d-%H%M%S')}-{place}", 1
    while (folder / f"{now}.{number}").exists():
        number += 1
    return f"{now}.{number}"


def _results_option(results: Path) -> str:
    return "" if str(results) == "results/runs" else " --results " + shlex.quote(str(results))
