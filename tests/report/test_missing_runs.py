"""What a sweep lacks is listed by commands that make just that."""

import dataclasses
import shlex
from typing import Any

import committed_results
import pytest
from made_up_groups import whole
from typer.testing import CliRunner

from repro import cli
from repro.config.compose import typed
from repro.config.schema import ConfigError
from repro.report import missing_runs, repeat, same_settings
from repro.report.summaries import Results

# committed are whole runs of seed 0; nobody trains the other
SWEEP = ["experiment=convergence", "model=resnet20", "data=cifar10", "nodes=4", "algo=dense,gtopk", "seed=0,12345"]


def test_each_line_makes_one_run_and_all_are_those_that_no_summary_has() -> None:
    sweep, results = typed(SWEEP), committed_results.load()
    done = CliRunner().invoke(cli.app, ["results", "missing", *SWEEP])
    assert done.exit_code == 0, done.output
    made = []
    for line in done.stdout.splitlines():
        program, verb, *words = shlex.split(line)
        (one,) = typed(words)
        assert (program, verb) == ("repro", "run")
        made.append(one.run_id)
    there = {
        (same_settings.config(group.settings).run_id, seed) for _, group in results.all_groups() for seed in group.seeds
    }
    as_whole = [dataclasses.replace(one, epochs=one.schedule_epochs) for one in sweep]
    lacking = [
        one.run_id
        for one, longer in zip(sweep, as_whole, strict=True)
        if not there & {(of.of_seed(0).run_id, one.seed) for of in (one, longer)}
    ]
    assert made == lacking and 0 < len(made) < len(sweep)
    assert done.stderr == f"in no summary: {len(made)} of {len(sweep)} runs\n"


@pytest.mark.parametrize(
    "words",
    [
        "cluster=lab cluster.dilation=8 node=paper nodes=8 algo=topk",
        "cluster.alpha=network cluster=lab nodes=2 algo=dense",
        "algo=randomk algo.seed=5 seed=3",
        "network.alpha_s=1e-3 nodes=8",
        "network=results/lab/network.yaml cluster=lab",
        "experiment=dilated model=vgg16 nodes=4 algo=topk cluster.dilation=32 network=ethernet10g",
        "network=ethernet10g network.beta_s_per_byte=1e-9",
    ],
)
def test_a_lines_command_makes_that_run_whatever_its_cluster_and_network_are(words: str) -> None:
    """Dilations, latencies and draws were left out, and a network of a file was named as if it were in conf/."""
    for config in typed(words.split())[:2]:
        line = repeat.of_config(config.experiment, config, [config.seed])
        assert config.run_id in [one.run_id for one in typed(shlex.split(line)[2:])], line


@pytest.mark.parametrize("algo", ["randomk", "qsgd", "powersgd", "gtopk"])
def test_a_seed_that_algorithms_draw_by_is_there_once_it_was_trained(algo: str) -> None:
    """All but seed 0 of those that draw were listed for good."""
    sweep = typed(["model=resnet20", "data=cifar10", "nodes=4", f"algo={algo}", "seed=0,1,2"])
    made = whole("gtopk", [1]) | {"seeds": [1], "settings": dataclasses.asdict(sweep[1].of_seed(0))}
    results = Results({}, {"convergence": {"groups": [made]}})
    assert [one.seed for one in missing_runs.find(sweep, results)] == [0, 2]


def test_of_a_grid_of_networks_nothing_is_listed_that_would_be_refused() -> None:
    words = ["experiment=tradeoff", "model=vgg16", "nodes=8", "algo=dense"]  # of thousands
    with pytest.raises(ConfigError, match=f"trains nothing; type repro map {' '.join(words)}$"):
        cli.app(["results", "missing", *words, "seed=0"], standalone_mode=False)


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"epochs": 15}, [1]),
        ({}, [1]),  # a whole run has the first 15 epochs
        ({"epochs": 14}, [0, 1]),
        ({"epochs": 15, "scale_schedule": True}, [0, 1]),
        ({"epochs": 15, "precision": "float32"}, [0, 1]),
    ],
)
def test_a_longer_run_of_the_same_schedule_counts(settings: dict[str, Any], left: list[int]) -> None:
    sweep = typed(
        ["model=resnet20", "data=cifar10", "nodes=4", "algo=gtopk", "precision=bfloat16", "epochs=15", "seed=0,1"]
    )
    made = whole("gtopk", [0], **settings)
    made["settings"] = dataclasses.asdict(sweep[0]) | {"epochs": 141} | settings
    results = Results({}, {"convergence": {"groups": [made]}})
    assert [one.seed for one in missing_runs.find(sweep, results)] == left
