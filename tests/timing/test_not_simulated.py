"""What `repro simulate`, `bench` and their kin refuse, as it would do nothing there or be told wrongly."""

import itertools
from pathlib import Path

import pytest
from test_simulate import rows

from repro import cli
from repro.cluster import ranks
from repro.config.compose import compose
from repro.config.schema import ConfigError
from repro.timing import bench_collectives, bench_step
from repro.train.loop import load_data


@pytest.mark.parametrize("key", ["hierarchical=true", "bucket_mb=1", "overlap=on", "machines=2"])
def test_what_is_not_simulated_is_refused(key):
    """Whole gradients between nodes of one level were simulated, or measured, in their place."""
    with pytest.raises(ConfigError, match=f"^{key}: not simulated"):
        rows("algo=dense", "nodes=4", key)
    with pytest.raises(ConfigError, match=f"^{key}: not simulated or measured"):
        bench_collectives.measure_collectives(compose(["cluster=lab", "nodes=2", key]), [1000], 3, Path("nowhere"))


def test_collectives_that_would_have_one_name_are_refused(tmp_path):
    """Two rows of gtopk, one of each wire format, could not be told apart."""
    configs = compose(["cluster=lab", "nodes=2", "algo=gtopk", "algo.wire=pairs,gaps"])
    with pytest.raises(ConfigError, match="^algo.wire: rows that differ in nothing else have one name in rows.jsonl"):
        bench_collectives.measure_collectives(configs, [1000], 3, tmp_path / "rows.jsonl")


def test_a_plain_loop_has_as_many_batches_as_steps_and_one_in_each(tmp_path):
    """It ended with its epoch, and its rate counted all steps."""
    (config,) = compose(["data=synthetic", "data.train_images=32", "nodes=2", "batch_per_node=8", "accumulate=2"])
    feed = bench_step.endless(config, load_data(config), 1)
    shapes = [images.shape for images, _ in itertools.islice(feed, 5)]  # 2 an epoch
    assert shapes == [(8, 3, 32, 32)] * 5
    with pytest.raises(ConfigError, match="leave accumulate and stages out"):
        bench_step.measure_steps([config], 1, 1, tmp_path)


def test_stages_and_stated_compute_are_refused_where_they_do_nothing():
    with pytest.raises(ConfigError, match="stages=2: pipelines are predicted by `repro strategies`"):
        bench_collectives.measure_collectives(compose(["cluster=lab", "stages=2"]), [1000], 3, Path("nowhere"))
    with pytest.raises(ConfigError, match="compute_s=0.2: .*type node=0.2"):
        rows("algo=dense", "nodes=4", "compute_s=0.2")


@pytest.mark.parametrize(
    ("command", "says"),
    {
        "tune model=resnet20 nodes=4 algo=dense": "node= here; type node=0.2",
        "map nodes=2 model=resnet20 algo=dense": "tradeoff.node= here; type tradeoff.node=0.2",
        "bench regret": "timed on this machine here; leave compute_s out",
        "strategies model=resnet20 nodes=4": "the published ones here; leave compute_s out",
    }.items(),
)
def test_a_command_that_does_not_read_compute_s_says_what_it_reads(
    command: str, says: str, tmp_path, monkeypatch
) -> None:
    """They dropped it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ranks, "launch", None)
    with pytest.raises(ConfigError, match=f"^compute_s=0.2: the seconds of a node are {says}"):
        cli.app([*command.split(), "compute_s=0.2"], standalone_mode=False)


@pytest.mark.parametrize("command", ["map nodes=2 model=resnet20 algo=dense", "strategies model=resnet20 nodes=4"])
@pytest.mark.parametrize("word", ["results=elsewhere", "seed=3", "lr=0.2", "wandb.mode=online"])
def test_a_prediction_refuses_what_it_does_not_read(command: str, word: str, tmp_path, monkeypatch) -> None:
    """results= left the committed predictions to be written over, without a word."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"^{word.split('=')[0]}=: nothing is trained here, .*; --out says where"):
        cli.app([*command.split(), word], standalone_mode=False)


@pytest.mark.parametrize("command", ["network", "collectives", "step", "regret"])
def test_a_measurement_refuses_stated_compute(command: str, tmp_path, monkeypatch) -> None:
    """Three of them dropped it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ranks, "launch", None)
    with pytest.raises(ConfigError, match="^node=paper: all is measured here, .*; leave node out"):
        cli.app(["bench", command, "cluster=lab", "nodes=2", "node=paper"], standalone_mode=False)
