"""Turns run folders into summaries, and loads what was obtained and what the paper published. Needs no torch."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from repro import metric
from repro.comm.traffic import HEADERS_BYTES
from repro.config.schema import ConfigError
from repro.iteration_time import IterationTime, is_measured
from repro.json_text import json_text
from repro.metric import Metric
from repro.report import same_machine
from repro.report.curves import curve, middle, seed_accuracies
from repro.report.finished_run import Damaged, Run, read_run
from repro.report.same_settings import put_over
from repro.runs import per_step
from repro.runs.run_folder import run_folders
from repro.tables import Row
from repro.whole_files import write_whole


@dataclass(frozen=True)
class Group:
    """Holds finished runs on the same data that differ only in seed.

    Times are in seconds; the words are those of docs/design.md.
    """

    settings: dict[str, Any]  # the resolved configuration without the seed
    data: str  # where the images came from, as the figures say it
    seeds: list[int]
    runs: list[str]
    machine: dict[str, Any]  # versions, processor and commit of the first run
    curve: list[Row]  # one row an epoch: epoch, step, and mean and std over the seeds
    per_step: Row  # the usual step's counted traffic of rank 0, its range, and the busiest rank's: `per_step.counted`
    iteration_time: list[Row]  # source, network, nodes, compute_s, compress_s, communicate_s, hidden_s
    recorded: list[dict[str, Any]] = field(default_factory=list)  # what `probe_steps` recorded, of the first seed
    fingerprint: str = ""  # of the data, see data.Content; "" = generated, or an old run
    seed_accuracies: list[list[float]] = field(default_factory=list)  # or perplexities, of several seeds: each one's

    @property
    def model(self) -> str:
        return self.settings["model"]["name"]

    @property
    def algo(self) -> str:
        return self.settings["algo"]["name"]

    @property
    def nodes(self) -> int:
        return self.settings["nodes"]

    @property
    def metric(self) -> Metric:
        return metric.of(self.settings["data"])

    @property
    def n(self) -> int:
        return len(self.seeds)

    @property
    def epochs(self) -> float:
        return self.curve[-1]["epoch"] if self.curve else 0

    @property
    def compressed(self) -> bool:
        """Returns whether the authors' schedule was compressed, or stretched, to the epochs of this run."""
        return self.settings["scale_schedule"] and self.settings["epochs"] != self.settings["schedule_epochs"]

    @property
    def whole(self) -> bool:
        """Returns whether the run has all epochs of the schedule as it is written."""
        full = self.settings["epochs"] >= self.settings["schedule_epochs"]
        return full and self.settings["steps"] is None and not self.compressed

    @property
    def schedule(self) -> str:
        """Returns how much of the authors' schedule this run has, and whether it was compressed."""
        epochs, full, steps = (self.settings[name] for name in ("epochs", "schedule_epochs", "steps"))
        if self.compressed:
            beginning = "" if steps is None else f"first {steps} steps of the "
            return f"{beginning}schedule of {full} epochs compressed to {epochs}"
        if self.whole:
            return f"{epochs} epochs"
        return f"first {epochs} of {full} epochs" if steps is None else f"first {steps} steps of {full} epochs"

    @property
    def socket_bytes(self) -> float | None:
        """Returns the bytes of a step with gloo's headers; in older summaries as if an all-reduce had P messages."""
        sent, messages = self.per_step.get("bytes_sent"), self.per_step.get("messages") or 0
        return None if sent is None else sent + self.per_step.get("framing", HEADERS_BYTES * messages)

    @property
    def timed(self) -> Row | None:
        """Returns the iteration time on the chosen network: measured where that was possible, else modelled."""
        return min(self.iteration_time, key=lambda row: not is_measured(row["source"]), default=None)

    @property
    def time(self) -> IterationTime | None:
        return IterationTime.of(self.timed) if self.timed else None


@dataclass(frozen=True)
class Results:
    """Holds everything that figures and tables may draw from."""

    paper: dict[str, Any]
    summaries: dict[str, dict[str, Any]]  # by name: {"groups": [...]} of trainings, or what a measuring command wrote
    reference: list[dict[str, Any]] = field(default_factory=list)  # a third party's runs, percent by epoch
    left_out: list[str] = field(default_factory=list)  # a line on each run folder that is not among the summaries

    def groups(self, experiment: str, measure: Metric | None = None) -> list[Group]:
        """Returns the runs of an experiment; with `measure`, those that have it on their test data."""
        found = alike([Group(**group) for group in self.summaries.get(experiment, {}).get("groups", [])])
        return [group for group in found if measure in (None, group.metric)]

    def all_groups(self) -> Iterator[tuple[str, Group]]:
        for experiment in sorted(self.summaries):
            for group in self.groups(experiment):
                yield experiment, group


def alike(groups: Sequence[Group]) -> list[Group]:
    """Gives runs that compute the same on one machine their median compute, so that its noise ranks no algorithm."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        seconds[_compute(group)] += [time["compute_s"] for time in group.iteration_time]
    found = []
    for group in groups:
        same = seconds[_compute(group)]
        times = [time | {"compute_s": statistics.median(same)} for time in group.iteration_time]
        found.append(dataclasses.replace(group, iteration_time=times))
    return found


def _compute(group: Group) -> str:
    """Returns a key of all that the compute seconds of a rank depend on."""
    settings, machine = group.settings, group.machine
    batch = settings["batch_per_node"] * settings["accumulate"]
    threads = settings["threads"] or max(1, machine.get("cpus", 1) // group.nodes)
    size, stated = settings["data"]["image_size"], (settings.get("compute_s"), settings.get("node"))
    size = size or (settings["data"]["sequence"], settings["data"]["classes"])
    part = (settings.get("stages", 1), settings.get("cuts", []))  # of the network, that a rank has
    return str(
        (settings["model"], part, batch, size, settings["precision"], threads, stated, same_machine.kind(machine))
    )


def folder() -> Path:
    """Returns the results of the current folder, of this checkout, or of the wheel. Raises ConfigError."""
    package = Path(__file__).parents[1]
    for place in (Path("results"), package.parent / "results", package / "committed"):
        if (place / "paper.yaml").is_file():
            return place
    raise ConfigError("results/paper.yaml is missing: run from the root of a checkout of the suite.")


def timed_batch(paper: dict[str, Any], model: str) -> int:
    """Returns the samples of an iteration that was timed for the paper; of the LSTM those of the authors' settings."""
    parts = paper["breakdown_gtopk_32_nodes"]
    return int(parts[model]["batch_per_node"] if model in parts else paper["models"][model]["batch_per_node"])


def load(place: Path | None = None, runs: Path | None = None, alone: bool = False) -> Results:
    """Loads the committed summaries; with `runs`, the finished runs there replace groups of the same settings.

    `alone`: they replace all of their experiments.
    """
    place = place or folder()
    summaries = saved(place)
    for path in sorted(place.glob("lab/**/*.json*")):
        summaries[str(path.relative_to(place).with_suffix(""))] = read_json(path)
    collected, left_out = ({}, []) if runs is None else collect(runs)
    for name, new in collected.items():
        summaries[name] = new if alone else put_over(summaries.get(name, {"groups": []}), new)
    paper, reference = (yaml.safe_load((place / name).read_text()) for name in ("paper.yaml", "reference_curves.yaml"))
    return Results(paper, summaries, reference["runs"], left_out)


def saved(place: Path) -> dict[str, dict[str, Any]]:
    """Returns the summaries that `save` wrote to `place`, by experiment. Raises ConfigError for a damaged one."""
    found = {path.stem: read_json(path) for path in sorted(place.glob("summaries/*.json"))}
    for name, summary in found.items():
        try:
            for group in summary.get("groups", []):
                Group(**group)
        except (TypeError, AttributeError) as error:
            raise ConfigError(f"{place}/summaries/{name}.json is no summary of this version: {error}.") from None
    return found


def read_json(path: Path) -> Any:
    """Reads a JSON file, or the lines of a .jsonl file as {"rows": [...]}. Raises ConfigError for one that is none."""
    try:
        if path.suffix == ".jsonl":
            return {"rows": [json.loads(line) for line in path.read_text().splitlines() if line.strip()]}
        return json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no JSON: {error}. Take it from git, or remove it.") from None


# Run folders.


def collect(
    runs: Path, only: Sequence[str] = (), stopped: bool = False, times: bool = True
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Returns summaries by experiment of the finished runs under `runs`, and one line for each folder that is left out.

    `stopped`: those that stopped count as far as they came. Without `times` their seconds are left out.
    A damaged folder keeps no other from being collected. Raises ConfigError where there is no run at all.
    """
    found: dict[str, dict[str, list[list[tuple[Path, Run]]]]] = defaultdict(lambda: defaultdict(list))
    left_out = []
    places = [place for place in run_folders(runs) if not only or place.parent.name in only]
    if not places:
        begun = sorted({place.parent.name for place in run_folders(runs)})
        if begun:
            raise ConfigError(f"--only {', '.join(only)}: {runs} has no runs of it; there are {', '.join(begun)}.")
        raise ConfigError(
            f"{runs}: there is no run folder. Name the one that `repro run` wrote to: --runs results/runs."
        )
    for place in places:
        try:
            run = read_run(place, stopped)
        except Damaged as reason:
            left_out.append(f"{place}: {reason}")
            continue
        alike = found[place.parent.name][dataclasses.replace(run.config, seed=0).run_id]
        of_this_data = (group for group in alike if all(other.content.may_be(run.content) for _, other in group))
        members = next(of_this_data, None)
        if members is None:
            alike.append(members := [])
        members.append((place, run))
    return {
        experiment: {
            "experiment": experiment,
            "groups": [
                summarize(members) | ({} if times else {"iteration_time": []})
                for _, alike in sorted(groups.items())
                for members in alike
            ],
        }
        for experiment, groups in sorted(found.items())
    }, left_out


def summarize(members: list[tuple[Path, Run]]) -> dict[str, Any]:
    """Returns one group as JSON, from runs that differ only in their seed."""
    members = sorted(members, key=lambda member: member[1].config.seed)
    runs = [run for _, run in members]
    first = runs[0]
    settings = {k: v for k, v in dataclasses.asdict(first.config).items() if k not in NOT_SETTINGS}
    del settings["data"]["root"]  # a place on that machine
    evaluations = [run.of("eval") for run in runs]
    group = Group(
        settings=settings,
        data=first.content.description,
        fingerprint=max(run.content.fingerprint for run in runs),  # "" is the least
        seeds=[run.config.seed for run in runs],
        runs=[place.name for place, _ in members],
        machine={k: first.timed_on[k] for k in MACHINE if k in first.timed_on},
        curve=curve(evaluations, first.config.data.metric),
        per_step=per_step.counted(first.metrics),
        iteration_time=middle(
            [run.of("iteration_time") for run in runs if same_machine.alike(run.timed_on, first.timed_on)]
        ),
        recorded=[_short(seen) for seen in first.recorded[:-1]] + first.recorded[-1:],
        seed_accuracies=seed_accuracies(evaluations, first.config.data.metric),
    )
    return rounded(dataclasses.asdict(group))


NOT_SETTINGS = {
    "seed", "results", "experiment", "wandb", "tradeoff", "timeout_s", "compare_every", "checkpoint_every"
}  # fmt: skip
SINGLE = ("schedule", "selections", "result")  # of a record: kept of the last step alone, as they are long
MACHINE = ("versions", "cpu", "cpus", "processor", "rates", "gpus", "device", "platform", "git")


def _short(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in SINGLE}


def rounded(value: Any) -> Any:
    """Rounds a summary's numbers to six significant digits, so that a change of one bit does not change a file."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list | tuple) else value


def save(summaries: dict[str, dict[str, Any]], place: Path) -> list[Path]:
    """Writes one file per experiment under `place`/summaries, one line per group; those of other experiments stay."""
    (place / "summaries").mkdir(parents=True, exist_ok=True)
    written = []
    for name, summary in summaries.items():
        path = place / "summaries" / f"{name}.json"
        groups = ",\n".join(json_text(group, ensure_ascii=False) for group in summary["groups"])
        write_whole(path, f'{{"experiment": {json_text(name)}, "groups": [\n{groups}\n]}}\n')
        written.append(path)
    return written
