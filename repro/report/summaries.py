"""Loads what was obtained and what the paper published, and saves summaries. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from repro.config.schema import ConfigError
from repro.json_text import json_text
from repro.metric import Metric
from repro.report.from_run_folders import collect
from repro.report.group import Group, alike
from repro.report.same_settings import put_over
from repro.whole_files import write_whole


@dataclass(frozen=True)
class Results:
    """Holds everything that figures and tables may draw from."""

    paper: dict[str, Any]
    summaries: dict[str, dict[str, Any]]  # by name: {"groups": [...]} of trainings, or what a measuring command wrote
    reference: list[dict[str, Any]] = field(default_factory=list)  # a third party's runs, percent by epoch
    left_out: list[str] = field(default_factory=list)  # a line on each run folder that is not among the summaries
    _alike: dict[str, tuple[Any, list[Group]]] = field(init=False, repr=False, compare=False, default_factory=dict)

    @property
    def networks(self) -> dict[str, Any]:
        """Returns what is published of each network, by name: its parameters, data set, batch and schedule."""
        return dict(self.paper.get("models", {}))

    def groups(self, experiment: str, measure: Metric | None = None) -> list[Group]:
        """Returns the runs of an experiment, `alike` in compute; with `measure`, those that have it on test data."""
        listed = self._listed(experiment)
        if self._alike.get(experiment, ([], []))[0] is not listed:  # every table asks for most experiments
            self._alike[experiment] = listed, alike(self.as_timed(experiment))
        return [group for group in self._alike[experiment][1] if measure in (None, group.metric)]

    def as_timed(self, experiment: str) -> list[Group]:
        """Returns the runs of an experiment with the seconds of each."""
        return [Group(**group) for group in self._listed(experiment)]

    def _listed(self, experiment: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.summaries.get(experiment, {}).get("groups", [])
        return listed

    def all_groups(self) -> Iterator[tuple[str, Group]]:
        for experiment in sorted(self.summaries):
            for group in self.groups(experiment):
                yield experiment, group


def folder() -> Path:
    """Returns the results of the current folder, of this checkout, or of the wheel. Raises ConfigError."""
    package = Path(__file__).parents[1]
    for place in (Path("results"), package.parent / "results", package / "committed"):
        if (place / "paper.yaml").is_file():
            return place
    raise ConfigError("results/paper.yaml is missing: run from the root of a checkout of the suite.")


def unread(place: Path) -> str:
    """Says that figures are not drawn from what was written to `place`; "" where they are."""
    read = folder()
    if read.resolve() == place.resolve():
        return ""
    return f"repro plot and repro report read {read}, not {place}: what a run folder holds they draw with --runs FOLDER"


def unread_file(file: Path, name: str) -> str:
    """Says from which file the figures of the summary `name` are drawn; "" where it is this one."""
    read = folder() / "summaries" / name
    if read.resolve() == file.resolve():
        return ""
    return f"repro plot and repro report read {read}, not {file}: to draw it, put it there in the place of the other"


def timed_batch(paper: dict[str, Any], model: str) -> int:
    """Returns the samples of an iteration that was timed for the paper; of the LSTM those of the authors' settings."""
    parts = paper["breakdown_gtopk_32_nodes"]
    return int(parts[model]["batch_per_node"] if model in parts else paper["models"][model]["batch_per_node"])


def load(place: Path | None = None, runs: Path | None = None, alone: bool = False) -> Results:
    """Loads the committed summaries; with `runs`, the finished runs there replace groups of the same settings.

    `alone`: without the committed ones.
    """
    place = place or folder()
    summaries = {} if alone else saved(place)
    measured = () if alone else (path for end in ("json", "jsonl") for path in place.glob(f"lab/**/*.{end}"))
    for path in sorted(measured):  # without files that are being written, which have further endings
        summaries[str(path.relative_to(place).with_suffix(""))] = read_json(path)
    collected, left_out = ({}, []) if runs is None else collect(runs)
    for name, new in collected.items():
        summaries[name] = put_over(summaries.get(name, {"groups": []}), new)
    return Results(paper(place), summaries, read_yaml(place / "reference_curves.yaml")["runs"], left_out)


def paper(place: Path | None = None) -> dict[str, Any]:
    """Returns what the paper published, as paper.yaml has it. Raises ConfigError."""
    return read_yaml((place or folder()) / "paper.yaml")


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads one of the files of results/ that people write."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, 7 times as fast; not every PyYAML has it
    return dict(yaml.load(path.read_text(), loader))  # noqa: S506  (both are safe)


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
