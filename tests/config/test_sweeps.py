"""Sweeps become the right points; what is quoted is read back."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.config import groups
from repro.config.compose import compose, typed
from repro.config.schema import Config, ConfigError
from repro.config.sweeps import parse, quote


def one(*overrides: str) -> Config:
    (found,) = compose(list(overrides))
    return found


def test_commas_sweep_but_not_inside_brackets_or_quotes() -> None:
    found = compose(["algo=dense,topk", "nodes=4,8", "lr_drops=[3,7]", "wandb.project='a,b'"])
    assert [(c.algo.name, c.nodes) for c in found] == [("dense", 4), ("dense", 8), ("topk", 4), ("topk", 8)]
    assert {tuple(c.lr_drops) for c in found} == {(3, 7)}
    assert {c.wandb.project for c in found} == {"a,b"}


def test_a_point_that_comes_up_twice_is_one_run() -> None:
    assert len(compose(["algo=dense", "density=0.1,0.01", "seed=3,3"])) == 1  # dense has no density


@pytest.mark.parametrize("sweep", ["threads=1,2", "data.root=a,b", "data.workers=1,8", "evaluate_every=range(1,3)"])
def test_a_sweep_over_what_no_run_folder_tells_apart_is_refused(sweep: str) -> None:
    """All but the first point were left out without a word."""
    key = sweep.partition("=")[0]
    with pytest.raises(ConfigError, match=f"^{key}=(1|a) and {key}=(2|8|b): both would be one run, as {key} is not in"):
        compose(["model=alexnet", "data.classes=4", sweep])


def test_a_whole_schedule_is_one_run_whether_it_would_be_scaled_or_not() -> None:
    found = compose(["epochs=15,141", "scale_schedule=true,false", "schedule_epochs=141"])
    assert [(c.epochs, c.scale_schedule) for c in found] == [(15, True), (15, False), (141, True)]


def test_mappings_of_an_experiment_that_overlap_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "conf"
    shutil.copytree(groups.conf_folder(), conf)
    monkeypatch.setattr(groups, "conf_folder", lambda: conf)
    sweep = [{"nodes": [2], "threads": [1]}, {"nodes": [4], "threads": [2]}]
    (conf / "experiment" / "parts.yaml").write_text(f"# @package _global_\nsweep: {sweep}\n")
    assert [c.threads for c in compose(["experiment=parts", "nodes=8", "seed=0,1"])] == [1, 1]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("qsgd", {("qsgd", 1)}),  # there is no key algo.warmup_steps, said algo=signs of docs/adding.md
        ("qsgd,qadam", {("qsgd", 1), ("qadam", 2)}),
        ("qsgd,dense", {("qsgd", 1), ("dense", 1)}),
        ("qadam", {("qadam", 2)}),
    ],
)
def test_an_algorithm_of_no_part_gets_no_options_of_anothers(
    typed: str, expected: set[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "conf"
    shutil.copytree(groups.conf_folder(), conf)
    monkeypatch.setattr(groups, "conf_folder", lambda: conf)
    sweep = [
        {"algo": ["dense", "topk"], "threads": [1]},
        {"algo": ["qadam"], "algo.warmup_steps": [5], "threads": [2]},
    ]
    (conf / "experiment" / "parts.yaml").write_text(f"# @package _global_\nsweep: {sweep}\n")
    assert {(c.algo.name, c.threads) for c in compose(["experiment=parts", f"algo={typed}"])} == expected


def test_the_user_replaces_what_an_experiment_sweeps() -> None:
    assert [c.algo.name for c in compose(["experiment=quickstart"])] == ["dense", "topk", "gtopk"]
    assert [c.algo.name for c in compose(["experiment=quickstart", "algo=topk"])] == ["topk"]
    assert [c.nodes for c in compose(["experiment=quickstart", "algo=dense", "nodes=2,3"])] == [2, 3]


def test_of_an_experiments_parts_those_that_hold_the_users_value_are_kept() -> None:
    found = compose(["experiment=convergence", "model=vgg16", "seed=0"])
    assert {(c.model.name, c.batch_per_node) for c in found} == {("vgg16", 128)}


@pytest.mark.parametrize(
    ("words", "spellings"),
    [
        ("experiment=momentum nodes=4 seed=0 algo=gtopk", ["momentum=0.0", "momentum=0", "momentum=0e0"]),
        ("experiment=density_sensitivity model=resnet20 seed=0", ["density=0.0005", "density=5e-4"]),
    ],
)
def test_a_value_is_that_of_an_experiment_however_it_is_written(words: str, spellings: list[str]) -> None:
    """momentum=0 began two runs of no part of the experiment beside its six."""
    first, *others = [[c.run_id for c in compose([*words.split(), text])] for text in spellings]
    assert all(ids == first for ids in others)


def test_values_of_several_parts_of_a_sweep_go_to_their_own_parts() -> None:
    """VGG-16 has another batch than ResNet-20; what no part holds goes to each of these."""
    of_both = compose(["experiment=convergence", "model=resnet20,vgg16", "algo=dense,qsgd", "seed=0"])
    found = [(config.model.name, config.batch_per_node, config.algo.name) for config in of_both]
    assert found == [(m, b, a) for m, b in (("resnet20", 32), ("vgg16", 128)) for a in ("dense", "qsgd")]


@pytest.mark.parametrize(
    ("words", "value"),
    [("momentum algo=gtopk,dense", "momentum=0.9"), ("momentum algo=gtopk", "lr=0.1"), ("many_nodes", "density=0.001")],
)
def test_a_value_chooses_all_runs_of_an_experiment_that_have_it(words: str, value: str) -> None:
    """momentum=0.9 left out the blocks that had it by default."""
    few = [f"experiment={words}".split()[0], *words.split()[1:], "seed=0"]
    key, _, number = value.partition("=")
    chosen = {config.run_id for config in typed([*few, value])}
    assert chosen == {config.run_id for config in typed(few) if getattr(config, key) == float(number)} != set()


def test_an_empty_list_in_an_experiments_sweep_is_a_value() -> None:
    found = compose(["experiment=density_sensitivity", "model=resnet20", "seed=0"])
    assert {(c.density, tuple(c.density_warmup)) for c in found if c.algo.sparse} == {
        (0.001, (0.004,)), (0.0005, (0.004,)), (0.0001, (0.004,)), (0.05, ())
    }  # fmt: skip


def test_a_key_given_twice_is_refused_not_chosen_from() -> None:
    with pytest.raises(ConfigError, match="nodes=4 nodes=8: nodes is given twice"):
        typed(["nodes=4", "nodes=8"])
    assert [c.nodes for c in typed(["nodes=8"], {"nodes": "2"})] == [8]  # a command's default is not given twice


SHARDS = ["a", "\\", "'", '"', " ", ",", "$(x)", "${y}", "\n", "=", "1", "null"]
PIECES = st.lists(st.sampled_from(SHARDS)).map("".join)


@settings(max_examples=60, deadline=None)
@given(PIECES | st.text(max_size=20) | st.booleans() | st.none() | st.lists(PIECES, max_size=3))
def test_a_quoted_value_is_read_back_as_it_was(value: object) -> None:
    assert parse(f"results={quote(value)}").value() == value


@pytest.mark.parametrize("value", ["a b/ü%d'\"x", "$(date)", "`date` 'x'"])
def test_the_quotes_that_are_offered_are_read_by_a_shell_as_they_are_meant(value: str) -> None:
    """They were Python's, in which a shell finds no end."""
    with pytest.raises(ConfigError, match="Put it in quotes") as caught:
        parse(f"results={value}")
    word = str(caught.value).partition("Put it in quotes: ")[2].removesuffix(".")
    typed = subprocess.run(["sh", "-c", f"printf %s {word}"], capture_output=True, text=True, check=True).stdout
    assert parse(typed).value() == value
