"""Every committed training has a command, and the command gives just its runs."""

import dataclasses
import shlex

import committed_results
import pytest

from repro.config.compose import typed
from repro.report import repeat, same_settings
from repro.report.summaries import Results

TRAINED = [
    (name, group)
    for name, group in committed_results.load().all_groups()
    if group.curve and group.curve[-1]["step"] >= repeat.LEAST
]


@pytest.mark.parametrize("name", sorted({name for name, _ in TRAINED}))
def test_a_command_gives_the_runs_of_its_summary_and_no_others(name: str) -> None:
    for group in (group for experiment, group in TRAINED if experiment == name):
        text = repeat.command(name, group)
        program, verb, *overrides = shlex.split(text)
        runs = typed(overrides)
        assert (program, verb) == ("repro", "run")
        assert [run.seed for run in runs] == group.seeds, text
        assert {run.experiment for run in runs} == {name}, text
        assert {run.of_seed(0).run_id for run in runs} == {same_settings.config(group.settings).run_id}, text


def test_an_algorithm_that_is_not_here_has_a_row_and_no_command() -> None:
    name, group = next((name, group) for name, group in TRAINED if name == "quickstart")
    of_others = dataclasses.replace(
        group, settings=group.settings | {"algo": group.settings["algo"] | {"name": "theirs", "options": {}}}
    )
    there = {"not_here": {"groups": [dataclasses.asdict(group)]}, name: {"groups": [dataclasses.asdict(of_others)]}}
    lines = repeat.part(Results({}, there), "").splitlines()
    for name, algorithm in (("not_here", "dense"), ("quickstart", "theirs")):
        title, said = lines[lines.index(f"## {name}") + 3 :][:2]
        assert title.startswith(f"# ResNet-20, {algorithm}, ") and said == "# conf/ has not all that it names"
