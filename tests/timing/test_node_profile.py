"""The seconds of one node: published, stated, or timed on this machine."""

import tempfile
import time
from pathlib import Path

import pytest
import torch
import yaml

from repro import cli
from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.timing import compress_time, fastest_map, node_profile, simulate, stated_iteration, strategies

NOWHERE = Path(tempfile.gettempdir(), "no_such_file.json")
PAPER = yaml.safe_load((Path(__file__).parents[2] / "results" / "paper.yaml").read_text())


def test_what_selects_takes_time_and_what_sends_its_weights_takes_none():
    """It went by the family: SparseLoCo selected in 0 s, and plain averages of two nodes had no known time."""
    of = {name: node_profile.published(compose(["model=resnet50", f"algo={name}"])[0]) for name in
          ("sparseloco", "decentralized", "low_precision_decentralized", "gtopk")}  # fmt: skip
    assert of["decentralized"].compress_s == 0 and of["gtopk"].compress_s > 0
    assert of["sparseloco"].compress_s is None and of["low_precision_decentralized"].compress_s is None


def test_the_published_profile_is_one_nodes_throughput():
    node = node_profile.published(compose(["model=resnet50"])[0])
    assert node.samples / node.compute_s == pytest.approx(PAPER["throughput_per_node"]["resnet50"]["single"])


@pytest.mark.parametrize(
    ("words", "checked"),
    [
        (["cluster=lab", "node=paper"], lambda config: stated_iteration.seconds(config, 1, [(1,)])),
        (["cluster=lab", "node=paper_compute"], lambda config: stated_iteration.seconds(config, 1, [(1,)])),
        (["experiment=tradeoff"], lambda config: fastest_map.check_timed({"models": []}, [config], {}, NOWHERE)),
        (["experiment=strategies", "stages=1"], lambda config: strategies.run([config], print, NOWHERE)),
    ],
)
def test_published_seconds_are_of_no_other_images_or_precision(words, checked):
    """`repro tune` alone asked: others had the seconds of 32 x 32 images for those of 224 x 224."""
    batch = ["model=vgg16", "algo=gtopk", "nodes=4", "batch_per_node=128", "accumulate=1"]
    for other in ("data.image_size=224", "precision=bfloat16"):
        with pytest.raises(ConfigError, match=f"the published seconds are of {other.partition('=')[0]}="):
            checked(compose([*words, *batch, other])[0])


@pytest.mark.parametrize("name", ["dilated", "authors_messages", "strategies", "tradeoff"])
def test_the_committed_settings_are_of_what_is_published(name):
    for config in compose([f"experiment={name}", "algo=gtopk", "nodes=4"]):
        node_profile.check_published(config)
        node_profile.check_samples(node_profile.published(config), config)


def test_a_measured_profile_is_positive_and_compress_is_part_of_the_step():
    node = node_profile.profile("measured", compose(["model=resnet20", "batch_per_node=2", "nodes=8"])[0], 269722)
    assert node.compute_s > 0 and 0 < node.compress_s < 1


def test_what_is_timed_here_has_the_update(monkeypatch):
    """Of VGG-16 that is an eighth of an iteration, which predictions left out."""
    monkeypatch.setattr(node_profile.Replica, "apply", lambda *_: time.sleep(0.1))
    monkeypatch.setattr("repro.timing.one_rank.clock", time.perf_counter)
    config = compose(["data=digits", "model=resnet20", "batch_per_node=2", "nodes=4"])[0]
    found = node_profile.backward("measured", config)
    assert min(found) > 0.1, "before the pass: no message waits for it"


def test_rows_of_one_network_have_one_compute_with_the_threads_of_a_rank(monkeypatch):
    """It was timed again for each row, and with threads that no rank would have."""
    seen = []
    monkeypatch.setattr(node_profile, "ready", lambda *_: seen.append(torch.get_num_threads()) or [0.1])
    configs = compose(["model=resnet20", "nodes=4,8", "algo=dense,topk", "threads=2"])
    try:
        rows = simulate.run(configs, "measured", None, None)
    finally:
        torch.set_num_threads(1)
    assert seen == [2] and {row["compute_s"] for row in rows} == {0.1}


def test_what_is_timed_here_is_timed_on_the_device_of_a_run(monkeypatch):
    """`repro tune` timed the processor, and trained on the GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = compose(["model=resnet20", "nodes=4", "device=cuda"])[0]
    for action in (
        lambda: node_profile.profile("measured", config, 1000),
        lambda: compress_time.compress(config, 1000),
    ):
        with pytest.raises(ConfigError, match="torch finds no GPU here"):
            action()


@pytest.mark.parametrize("node", ["paper", "0.14"])
def test_what_is_not_timed_has_no_iteration_time(node, capsys):
    """Quantised and low-rank algorithms had a compress of 0 s, and so the shortest iterations."""
    configs = compose(["model=vgg16", "nodes=8", "algo=dense,gtopk,onebit,powersgd,local_sgd"])
    found = {row["algo"]: row for row in simulate.run(configs, node, [10_000], None)}
    timed = {name for name, row in found.items() if row["iteration_s"] is not None}
    assert timed == {"dense", "local_sgd"} | ({"gtopk"} if node == "paper" else set())
    for name in found.keys() - timed:
        assert found[name]["compress_s"] is found[name]["samples_per_s"] is found[name]["efficiency"] is None
        assert found[name]["communicate_s"] > 0
    assert found["dense"]["compress_s"] == found["local_sgd"]["compress_s"] == 0
    said = capsys.readouterr().out
    assert "No iteration time for" in said and "onebit, powersgd" in said and "node=measured" in said
    stated = {row["algo"]: row["compress_s"] for row in simulate.run(configs, "0.14+0.09", [10_000], None)}
    assert stated == {"dense": 0, "gtopk": 0.09, "onebit": 0.09, "powersgd": 0.09, "local_sgd": 0}
    assert "No iteration time" not in capsys.readouterr().out


def test_published_seconds_are_of_the_published_batch_unless_none_is_typed():
    """512 images took the seconds of 128."""
    words = ["simulate", "model=resnet20", "nodes=4", "algo=dense", "parameters=10k"]
    cli.app(words, standalone_mode=False)
    cli.app([*words, "batch_per_node=64", "accumulate=2"], standalone_mode=False)
    for key in ("batch_per_node=512", "accumulate=2"):
        with pytest.raises(ConfigError, match="of 128 samples a step, not .*; type batch_per_node="):
            cli.app([*words, key], standalone_mode=False)
    for batch in (3, 256):
        with pytest.raises(
            ConfigError, match=f"samples a step, not {batch * 32}; type batch_per_node=128 accumulate=1"
        ):
            cli.app([*words, "batch_per_node=32", f"accumulate={batch}"], standalone_mode=False)
    with pytest.raises(ConfigError, match="of 128 samples a step, not 512; type batch_per_node=128"):
        node_profile.backward("paper", compose(["model=resnet20", "batch_per_node=512"])[0])
