"""Run folders -> summaries -> tables: what was obtained, and what the paper published. Needs no torch."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from repro.config import Config, ConfigError, from_yaml
from repro.record import last_period
from repro.tables import Row

CURVE = ("train_loss", "test_loss", "test_accuracy")
PARTS = ("compute_s", "compress_s", "communicate_s")
PER_STEP = ("k", "bytes_sent", "messages", "rounds")


@dataclass(frozen=True)
class Group:
    """Finished runs that differ in their seed alone. Times are in seconds; the paper's words, see DESIGN."""

    settings: dict[str, Any]  # the resolved configuration without the seed
    data: str  # where the images came from, as the figures say it
    seeds: list[int]
    runs: list[str]
    machine: dict[str, Any]  # versions, processor and commit of the first run
    curve: list[Row]  # one row an epoch: epoch, step, and mean and std over the seeds
    per_step: Row  # the last step's counted traffic of rank 0
    iteration_time: list[Row]  # source, network, nodes, compute_s, compress_s, communicate_s, hidden_s
    recorded: list[dict[str, Any]] = field(default_factory=list)  # what a probe saw, first seed

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
    def n(self) -> int:
        return len(self.seeds)

    @property
    def epochs(self) -> float:
        return self.curve[-1]["epoch"] if self.curve else 0

    @property
    def schedule(self) -> str:
        """How the authors' schedule was fitted into the epochs of this run."""
        epochs, full = self.settings["epochs"], self.settings["schedule_epochs"]
        if epochs >= full and self.settings["steps"] is None:
            return f"{epochs} epochs"
        how = "compressed to" if self.settings["scale_schedule"] else "cut after"
        return f"schedule of {full} epochs {how} {self.epochs:g}"

    @property
    def time(self) -> Row | None:
        """One iteration on the chosen network: measured where that was possible, else modelled."""
        return min(self.iteration_time, key=lambda row: row["source"] != "measured", default=None)

    @property
    def step_s(self) -> float | None:
        return iteration_s(self.time) if self.time else None


def iteration_s(time: Row) -> float:
    """Seconds of an iteration from its parts, less what went on beside them."""
    return sum(time[part] for part in PARTS) - time.get("hidden_s", 0.0)


@dataclass(frozen=True)
class Results:
    """Everything figures and tables may draw from."""

    paper: dict[str, Any]
    summaries: dict[str, dict[str, Any]]  # by name: {"groups": [...]} of trainings, or what a measuring command wrote

    def groups(self, experiment: str) -> list[Group]:
        return alike([Group(**group) for group in self.summaries.get(experiment, {}).get("groups", [])])

    def all_groups(self) -> Iterator[tuple[str, Group]]:
        for experiment in sorted(self.summaries):
            for group in self.groups(experiment):
                yield experiment, group


def alike(groups: Sequence[Group]) -> list[Group]:
    """Runs that compute the same on the same machine get the median compute of all, lest its noise rank algorithms."""
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
    """All that the compute seconds of a rank depend on."""
    settings, machine = group.settings, group.machine
    batch = settings["batch_per_node"] * settings["accumulate"]
    threads = settings["threads"] or max(1, machine.get("cpus", 1) // group.nodes)
    size, stated = settings["data"]["image_size"], settings.get("compute_s")
    where = [machine.get(name) for name in ("cpu", "gpus", "device")]
    return str((settings["model"], batch, size, settings["precision"], threads, stated, where))


def folder() -> Path:
    """The results of this checkout, of the current folder, or those packed into the wheel."""
    package = Path(__file__).parent
    for place in (Path("results"), package.parent / "results", package / "committed"):
        if (place / "paper.yaml").is_file():
            return place
    raise ConfigError("results/paper.yaml is missing: run from the root of a checkout of the suite.")


def load(place: Path | None = None, runs: Path | None = None) -> Results:
    """Committed summaries; with `runs`, what the finished runs there say goes over them."""
    place = place or folder()
    summaries = saved(place)
    summaries |= {f"lab/{path.stem}": read_json(path) for path in sorted(place.glob("lab/*.json*"))}
    if runs is not None:
        summaries |= collect(runs)[0]
    return Results(yaml.safe_load((place / "paper.yaml").read_text()), summaries)


def saved(place: Path) -> dict[str, dict[str, Any]]:
    """The summaries that `save` wrote to `place`, by experiment."""
    return {path.stem: read_json(path) for path in sorted(place.glob("summaries/*.json"))}


def read_json(path: Path) -> Any:
    """A JSON file, or the list of the lines of a .jsonl file."""
    if path.suffix == ".jsonl":
        return {"rows": [json.loads(line) for line in path.read_text().splitlines() if line.strip()]}
    return json.loads(path.read_text())


# Run folders.


@dataclass(frozen=True)
class Run:
    config: Config
    provenance: dict[str, Any]
    metrics: list[dict[str, Any]]
    recorded: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.metrics if line["kind"] == kind]


def read_run(place: Path) -> Run:
    recorded = place / "recorded.json"
    metrics = (place / "metrics.jsonl").read_text().splitlines()
    return Run(
        from_yaml(place / "config.yaml"),
        json.loads((place / "provenance.json").read_text()),
        [json.loads(line) for line in metrics if line.strip()],
        json.loads(recorded.read_text()) if recorded.exists() else [],
    )


def collect(runs: Path, only: Sequence[str] = ()) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Summaries by experiment of the finished runs under `runs`, and one line for each folder that was left out.

    Raises ConfigError where there is no run at all.
    """
    found: dict[str, dict[str, list[tuple[Path, Run]]]] = defaultdict(lambda: defaultdict(list))
    left_out = []
    places = sorted(path.parent for path in runs.glob("*/*/status.json") if not only or path.parent.parent.name in only)
    if not places:
        wanted = f" of {', '.join(only)}" if only else ""
        raise ConfigError(
            f"{runs}: there is no run folder{wanted}. Name the one that `repro run` wrote to: --runs results/runs."
        )
    for place in places:
        state = json.loads((place / "status.json").read_text())["state"]
        if state != "done":
            left_out.append(f"{place}: {state}")
            continue
        run = read_run(place)
        found[place.parent.name][dataclasses.replace(run.config, seed=0).run_id].append((place, run))
    return {
        experiment: {
            "experiment": experiment,
            "groups": [summarize(members) for _, members in sorted(groups.items())],
        }
        for experiment, groups in sorted(found.items())
    }, left_out


def summarize(members: list[tuple[Path, Run]]) -> dict[str, Any]:
    """One group as JSON, from runs that differ in their seed alone."""
    members = sorted(members, key=lambda member: member[1].config.seed)
    runs = [run for _, run in members]
    first = runs[0]
    settings = {k: v for k, v in dataclasses.asdict(first.config).items() if k not in NOT_SETTINGS}
    del settings["data"]["root"]  # a place on that machine
    group = Group(
        settings=settings,
        data=first.provenance.get("data", first.config.data.name),
        seeds=[run.config.seed for run in runs],
        runs=[place.name for place, _ in members],
        machine={k: first.provenance[k] for k in MACHINE if k in first.provenance},
        curve=curve([run.of("eval") for run in runs]),
        per_step={k: last_period(first.of("step"), k) for k in PER_STEP} if first.of("step") else {},
        iteration_time=middle([run.of("iteration_time") for run in runs]),
        recorded=[_short(seen) for seen in first.recorded[:-1]] + first.recorded[-1:],
    )
    return rounded(dataclasses.asdict(group))


NOT_SETTINGS = {
    "seed", "results", "experiment", "wandb", "tradeoff", "timeout_s", "compare_every", "checkpoint_every"
}  # fmt: skip
SINGLE = ("schedule", "selections", "result")  # of a record: kept of the last step alone, as they are long
MACHINE = ("versions", "cpu", "cpus", "gpus", "device", "platform", "git")


def _short(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in SINGLE}


def curve(evaluations: list[list[dict[str, Any]]]) -> list[Row]:
    """Mean and sample standard deviation over the seeds, at the epochs that every seed has evaluated."""
    by_epoch = [{line["epoch"]: line for line in lines} for lines in evaluations]
    common = sorted(set.intersection(*map(set, by_epoch))) if by_epoch else []
    rows = []
    for epoch in common:
        row: Row = {"epoch": epoch, "step": by_epoch[0][epoch]["step"]}
        for name in CURVE:
            mean, std = mean_std(lines[epoch].get(name) for lines in by_epoch)
            row |= {name: mean, f"{name}_std": std}
        rows.append(row)
    return rows


def middle(reported: list[list[dict[str, Any]]]) -> list[Row]:
    """Of every iteration time that all runs report, that of the run in the middle; of an even number, the faster."""
    everyones = [{(line["source"], line["network"]): line for line in lines} for lines in reported]
    rows = []
    for place in everyones[0]:
        same = [lines[place] for lines in everyones if place in lines]
        if len(same) == len(everyones):
            chosen = sorted(same, key=iteration_s)[(len(same) - 1) // 2]
            rows.append({k: v for k, v in chosen.items() if k != "kind"})
    return rows


def mean_std(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation; None for what cannot be said (no value; one value's deviation)."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def rounded(value: Any) -> Any:
    """Six significant digits in everything a summary holds, so that a change of one bit is no change of a file."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list | tuple) else value


def save(summaries: dict[str, dict[str, Any]], place: Path) -> list[Path]:
    """One file an experiment under `place`/summaries, one line a group; those of other experiments stay."""
    (place / "summaries").mkdir(parents=True, exist_ok=True)
    written = []
    for name, summary in summaries.items():
        path = place / "summaries" / f"{name}.json"
        groups = ",\n".join(json.dumps(group, ensure_ascii=False) for group in summary["groups"])
        path.write_text(f'{{"experiment": {json.dumps(name)}, "groups": [\n{groups}\n]}}\n')
        written.append(path)
    return written
