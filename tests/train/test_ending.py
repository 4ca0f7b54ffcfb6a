"""The end of a sweep: what the table and the sentences below it say, and the commands that are offered."""

import dataclasses
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from repro.comm.cost_formulas import closed_form
from repro.comm.traffic import Link
from repro.config.compose import compose
from repro.config.schema import Config
from repro.density import entries
from repro.report.group import Group
from repro.runs import progress
from repro.train import combinations, ending, next_steps

M = 269_722


def summary(config: Config, **more: Any) -> dict[str, Any]:
    """What a finished run of ResNet-20 leaves, its seconds of communication by the formulas."""
    wire, k = config.network, entries(config.density, M)
    name, nodes = config.algo.name if config.algo.sparse else "dense", config.nodes
    seconds = closed_form(name, nodes, M, k, Link(wire.alpha_s, wire.beta_s_per_byte))
    sent = {"dense": 4 * M, "topk": 8 * k * (nodes - 1), "gtopk": 16 * k}[name]
    times = {"compute_s": 0.05, "compress_s": 0.001, "communicate_s": seconds, "hidden_s": 0.0}
    return times | {
        "test_accuracy": 0.9, "bytes_sent_per_step": sent, "density": config.density, "k": k, "state": "done",
        "source": "modelled", "network": wire.name, "folder": str(config.folder), "error": None,
        "bytes_sent_between": None, "bytes_sent_worst_rank": None, "step": 3000, **more,
    }  # fmt: skip


def ended(words: str, **more: Any) -> tuple[list[Config], list[dict[str, Any]]]:
    configs = compose(shlex.split(words))
    return configs, [summary(config, **more) for config in configs]


def test_a_run_that_ends_in_the_density_warm_up_says_so_beside_its_bytes() -> None:
    configs, summaries = ended("algo=gtopk steps=20 data=digits", density=0.004, k=1078)
    (row,) = ending.rows(configs, summaries)
    names = list(row)
    assert names[names.index("sent per step") + 1] == "at density" and row["at density"] == "0.004"
    assert any(
        "inside its density warm-up" in line and "k = 1,078" in line for line in ending.notes(configs, summaries)
    )
    for target, later in ((0.001, "fewer"), (0.01, "more")):
        notes = ending.notes(*ended(f"algo=gtopk steps=20 data=digits density={target}", density=0.004, k=1078))
        assert any(f"and {later} follow at density {target}" in line for line in notes)
    configs, summaries = ended("algo=gtopk")
    assert "at density" not in ending.rows(configs, summaries)[0] and len(ending.notes(configs, summaries)) == 1


def test_a_run_that_ends_in_the_warm_up_of_1_bit_adam_says_so() -> None:
    """Its accuracy was plain Adam's, its bytes dense's, and its time that of compressed messages."""
    (said,) = (line for line in ending.notes(*ended("algo=qadam", step=132)) if "warm-up" in line)
    assert "1,000 steps, which are dense" in said and "Type algo.warmup_steps=26" in said
    assert "Type algo.warmup_steps=1" in " ".join(ending.notes(*ended("algo=qadam steps=3", step=3)))
    assert not any("warm-up" in line for line in ending.notes(*ended("algo=qadam", step=1001)))
    assert not any("warm-up" in line for line in ending.notes(*ended("algo=gtopk", step=132)))


def of_a_prefix(words: str, **more: Any) -> list[str]:
    return [line for line in ending.notes(*ended(words, **more)) if "epochs=" in line]


def test_a_run_of_the_first_epochs_says_so_beside_what_others_had_there() -> None:
    """Its accuracy at the high learning rate had nothing beside it, and read as if something were wrong."""
    words = "model=resnet20 algo=dense,topk,gtopk nodes=4 epochs=15"
    (said,) = of_a_prefix(f"{words} seed=0,1")
    assert said == (
        "epochs=15 has the first 15 of 141 epochs: compare it with epoch 15 of whole runs. Others had dense 84.84 % "
        "(P = 8, batch 16), Top-k 81.45 % (P = 8, batch 16), Top-k 80.40 % (P = 4, batch 32) at epoch 15 (ResNet-20, "
        "128 samples a step, lr 0.1, the original images)."
    )
    (config, *_), _ = ended(words)
    settings = dataclasses.asdict(config)
    assert Group(settings, "", [], [], {}, [], {}, []).schedule in said, "in the words of the tables"
    assert of_a_prefix("algo=gtopk epochs=15 lr=0.7") == [said[: said.index(" Others")]], "nobody had that rate"
    assert len(of_a_prefix("algo=gtopk epochs=5,15")) == 2


@pytest.mark.parametrize(
    "words",
    [
        "algo=gtopk",
        "algo=gtopk epochs=5 data=digits",
        "algo=gtopk epochs=5 scale_schedule=true",
        "algo=gtopk steps=20",
        "algo=gtopk model=vgg16_imagenet data=imagenet epochs=5",
    ],
)
def test_nothing_is_said_of_first_epochs_where_a_run_is_whole_or_of_other_data(words: str) -> None:
    assert of_a_prefix(words) == []
    assert of_a_prefix("algo=gtopk epochs=5", state="preempted") == [], "it has not got there"


def test_without_the_reference_curves_a_prefix_still_ends_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "paper.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    (said,) = of_a_prefix("model=resnet20 algo=gtopk epochs=15")
    assert said.endswith("epoch 15 of whole runs.")


def test_the_end_of_a_sweep_needs_no_torch() -> None:
    code = (
        "import sys; from repro.config.compose import compose; from repro.train import ending; "
        "(config,) = compose(['model=resnet20', 'algo=gtopk', 'epochs=15']); "
        "(line,) = ending.first_epochs([config], [{'state': 'done'}]); "
        "assert '84.84' in line and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_quickstart_ends_with_why_gtopk_takes_longer_than_topk() -> None:
    """With 1 % of ResNet-20 on 1 Gbps; the turn is where the formulas say, not at a number of nodes that is told."""
    (said,) = ending.rounds_against_bytes(*ended("experiment=quickstart"))
    assert "in 4 rounds of messages instead of 2" in said and "docs/algorithms.md" in said
    (turn,) = re.findall(r"ahead from (\d+) on, of 8, 16, 32, ... nodes", said)
    for nodes in (int(turn) // 2, int(turn)):
        configs, summaries = ended(f"experiment=quickstart nodes={nodes} data=synthetic data.train_images=10000")
        assert bool(ending.rounds_against_bytes(configs, summaries)) == (nodes < int(turn))


@pytest.mark.parametrize("more", ["bucket_mb=0.2 scope=bucket", "hierarchical=true machines=2"])
def test_rounds_of_buckets_and_of_machines_are_not_told_as_those_of_the_nodes(more: str) -> None:
    assert ending.rounds_against_bytes(*ended(f"experiment=quickstart {more}")) == []


def test_the_screen_shows_the_k_of_the_documentation() -> None:
    (config,) = compose(["model=resnet20", "algo=gtopk", "nodes=32"])
    said = progress.sent(config, M, lambda density: entries(density, M))
    assert said == "k = 269 of 269,722 parameters (density 0.001), in its warm-up 1,078"
    assert "k = 269 largest of 269,722" in (Path(__file__).parents[2] / "docs" / "index.md").read_text()


def offered(words: str, **more: Any) -> tuple[list[Config], list[list[str]]]:
    configs, summaries = ended(words, **more)
    return configs, [command for _, command in next_steps.suggest(configs, summaries, shlex.split(words))]


def settings(command: Sequence[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in command[2:] if "=" in word)  # type: ignore[misc]


@pytest.mark.parametrize(
    "words",
    [
        "experiment=quickstart 'results=/tmp/my runs'",
        "algo=gtopk steps=20 data=digits 'results=/tmp/my runs' density_warmup=[]",
        "model=resnet20 algo=dense,topk,gtopk epochs=2 nodes=8 data.root=/data network=ethernet10g",
        "algo=gtopk algo.wire=gaps algo.route=tree steps=20 data=digits",
        "algo=dense bucket_mb=25 overlap=on steps=20 data=digits",
    ],
)
def test_next_keeps_what_was_typed_and_trains_no_longer(words: str) -> None:
    typed = {key: value for key, value in (word.split("=", 1) for word in shlex.split(words))}
    configs, commands = offered(words)
    assert len(commands) >= 2
    runs = [command for command in commands if command[1] == "run"]
    assert runs
    for command in runs:
        assert shlex.split(shlex.join(command)) == command
        assert settings(command).get("results") == typed.get("results")
        new = compose(command[2:])
        assert all(map(combinations.allows, new)), command
        assert not {config.folder for config in new} & {config.folder for config in configs}, "it is done already"
        for config in new:
            assert config.epochs == 1 or (config.epochs, config.steps) == (configs[0].epochs, configs[0].steps)
    (other,) = (command for command in commands if command[1] == "simulate")
    assert "--run" in other and settings(other)["network"] != configs[0].network.name
    assert all("141" not in shlex.join(command) for command in commands)


def test_what_is_not_done_comes_first_and_nothing_new_is_offered() -> None:
    words = "algo=dense,gtopk 'results=/tmp/my runs' steps=3"
    _, commands = offered(words, state="failed", source=None)
    assert commands == [["repro", "run", *shlex.split(words)]]
    configs, summaries = ended("algo=dense", state="preempted", source=None)
    assert [command for _, command in next_steps.suggest(configs, summaries, None)] == [["repro", "status"]]


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        ("experiment=wire_formats algo.wire=pairs nodes=4 seed=0", ["seed"]),
        ("experiment=authors_messages", []),
        ("experiment=many_nodes algo=dense", ["algo", "seed"]),
        ("experiment=tradeoff_dilated model=vgg16_imagenet network=ethernet1g algo=dense", []),
    ],
)
def test_nothing_is_offered_that_would_be_refused(words: str, offers: list[str]) -> None:
    """Four experiments offered the other algorithms of the article with keys that these do not take."""
    configs = compose(shlex.split(words))
    done = [{"state": "done", "source": None, "folder": "runs"}] * len(configs)
    commands = [command for _, command in next_steps.suggest(configs, done, shlex.split(words))]
    runs = [command for command in commands if command[:2] == ["repro", "run"]]
    given = settings(["repro", "run", *shlex.split(words)])
    assert [key for run in runs for key in ("algo", "seed") if settings(run).get(key) != given.get(key)] == offers
    for run in runs:
        assert all(map(combinations.allows, compose(run[2:]))), run


def test_ranks_that_srun_started_are_not_offered_a_command_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed where srun is not, it would start all of them there, as threads."""
    assert any(command[:2] == ["repro", "run"] for command in offered("algo=gtopk nodes=2 steps=2 data=digits")[1])
    torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    for name, value in (torchrun | {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}).items():
        monkeypatch.setenv(name, value)
    for state in ("done", "failed"):
        _, commands = offered("algo=gtopk nodes=2 steps=2 data=digits", state=state)
        assert commands and not any(command[:2] == ["repro", "run"] for command in commands)


def test_ranks_that_only_a_launcher_starts_are_not_offered_a_command_without_it() -> None:
    """`repro run cluster=environment ...` was, which is refused where neither torchrun nor srun starts it."""
    for state in ("done", "failed"):
        _, commands = offered("cluster=environment algo=gtopk nodes=2 steps=2 data=digits", state=state)
        assert commands and not any(command[:2] == ["repro", "run"] for command in commands)


def test_messages_as_the_authors_have_them_are_not_offered_on_another_network() -> None:
    _, commands = offered("cluster=lab node=paper batch_per_node=128 cluster.authors=all algo=gtopk")
    assert not any("simulate" in command for command in commands)


def test_what_holds_for_two_seeds_is_said_once_and_lengths_are_each_runs() -> None:
    notes = ending.notes(*ended("algo=gtopk steps=20 data=digits seed=0,1", density=0.004, k=1078))
    assert len(notes) == len(set(notes)) and sum("density warm-up" in note for note in notes) == 1
    configs, summaries = ended("algo=dense,gtopk steps=2,4 data=digits")
    (said,) = (
        why for why, _ in next_steps.suggest(configs, summaries, ["algo=dense,gtopk", "steps=2,4"]) if "article" in why
    )
    assert "2 steps" in said and "or 4 steps" in said


def test_the_figure_of_an_experiment_is_offered_with_its_runs() -> None:
    _, commands = offered("experiment=convergence model=resnet20 epochs=2 algo=dense,topk,gtopk seed=0")
    figure = ["repro", "plot", "figures", "--only", "convergence", "--runs", "results/runs"]
    assert [*figure, "--alone", "--out", "mine"] in commands, "committed curves are longer, and would hide these"
    _, commands = offered("experiment=convergence model=resnet20 algo=dense,topk,gtopk seed=0")
    assert figure in commands
    _, commands = offered("experiment=quickstart")
    assert ["repro", "plot", "tables", "--only", "quickstart", "--runs", "results/runs"] in commands


def test_bytes_that_depend_on_values_come_with_their_range_and_the_busiest_node() -> None:
    told = {"bytes_sent_between": (3700, 9500), "bytes_sent_worst_rank": 5300.0}
    configs, summaries = ended("algo=dense nodes=4", **told)
    (line,) = [line for line in ending.notes(configs, summaries) if "depend on values" in line]
    assert "3.70 kB to 9.50 kB" in line and "busiest node sends 5.30 kB" in line


def test_a_folder_that_looks_like_an_option_is_typed_as_a_path() -> None:
    configs, summaries = ended("algo=dense,topk,gtopk nodes=4 experiment=quickstart results=-x")
    suggested = list(next_steps.suggest(configs, summaries, []))
    assert any("./-x" in " ".join(words) for _, words in suggested)
    for _, words in suggested:
        assert not any(word.startswith("-x") for word in words), words
