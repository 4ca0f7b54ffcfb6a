"""What may be combined is decided before any rank starts."""

import forked_cli
import pytest
import torch
from tiny_runs import QUICK, config

from repro.cluster import threads
from repro.cluster.environment import Place
from repro.commands.launch import launch
from repro.config import compose
from repro.config.groups import group_options
from repro.config.schema import ConfigError
from repro.train import combinations, cuda_graph, loop, possible

TRAINED = [name for name in group_options("experiment") if name not in ("tradeoff", "tradeoff_dilated", "dilated")]


@pytest.mark.parametrize("name", TRAINED)
def test_what_an_experiment_sweeps_is_possible(name: str) -> None:
    """A sweep is checked before its first run: random-k with momentum was refused, and kept all of momentum out."""
    for one in compose.compose([f"experiment={name}", "seed=0", "nodes=4"]):
        combinations.check(one)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algo=gtopk", "bucket_mb=1"], "scope=bucket"),
        (["algo=gtopk", "bucket_mb=1", "overlap=on"], "scope=bucket"),
        (["algo=dense", "overlap=on"], "bucket_mb=25"),
        (["algo=local_sgd", "bucket_mb=1"], "mixes weights"),
        (["algo=local_sgd", "hierarchical=true"], "hierarchical=true: algo=local_sgd mixes weights"),
        (["algo=ddp", "bucket_mb=1"], "algo.bucket_mb"),
        (["algo=dense", "bucket_mb=1", "overlap=on", "on_nonfinite=skip"], "type overlap=off"),
        (["algo=local_sgd", "probe_steps=[1]"], "mixes weights. Leave probe_steps out"),
        (["algo=dense", "probe_steps=[1]", "bucket_mb=1"], "leave bucket_mb and hierarchical out"),
        (["algo=gtopk", "scope=bucket"], "there are none; type bucket_mb=25 too, or leave scope out"),
        (["algo=dense", "machines=2"], "type hierarchical=true too, or leave machines out"),
        (["algo=gtopk", "probe_steps=[1]", "hierarchical=true"], "leave bucket_mb and hierarchical out"),
        (["algo=ddp", "algo.hook=powersgd"], "type cluster=processes"),
        (["algo=ddp", "cluster.messages=memory"], "over gloo; type cluster.messages=gloo"),
        (["algo=dgc", "momentum=0.9"], "algo=dgc takes the place of momentum"),
        (["algo=gtopk", "algo.correction=0.9"], "type momentum=0"),
        (["algo=topk", "algo.gain=10"], "algo.gain=10 takes the place of SGD's momentum; type momentum=0"),
        (["algo=gtopk_corrected", "momentum=0.9"], "SGD's momentum; type momentum=0, or algo.gain=1"),
        (
            ["algo=onebit", "momentum=0.9"],
            "algo.gain=10 takes the place of SGD's momentum; type momentum=0, or algo.gain",
        ),
        (["algo=gtopk_corrected", "algo.correction=0.9"], "type algo.gain=1, or algo.correction=0"),
        (["algo=ddp", "algo.hook=powersgd", "cluster=processes", "on_nonfinite=skip"], "type algo=powersgd"),
        (["algo=ddp", "algo.hook=powersgd", "cluster=processes", "algo.bucket_mb=1"], "has one bucket"),
        (["algo=ddp", "algo.rank=4"], "the rank is of algo.hook=powersgd; type that too, or algo=powersgd"),
        (["algo=ddp", "probe_steps=[1]"], "summed the gradients before any of them can be recorded"),
        (["algo=gtopk", "algo.mask=selected"], "type algo.correction=0.9"),
        (["algo=topk", "algo.clip=1", "bucket_mb=1", "scope=bucket"], "leave bucket_mb and hierarchical out"),
        (["algo=dense", "clip_grad=1", "bucket_mb=1", "overlap=on"], "sends parts of it before it is there; type clip"),
        (["algo=ddp", "clip_grad=1"], "algo=ddp sends parts of it before it is there; type clip_grad=0, or algo=dense"),
        (["algo=gtopk_corrected", "probe_steps=[1]"], "Leave probe_steps out"),
        (["algo=gtopk", "cuda_graph=on"], "cuda_graph=on: needs a GPU, .*Type cuda_graph=off"),
        (["algo=ddp", "cuda_graph=on"], "cuda_graph=on: algo=ddp sends within backward"),
        (["model=alexnet", "data.image_size=64", "cuda_graph=on"], "cuda_graph=on: model=alexnet has dropout"),
        (["algo=decentralized", "algo.topology=shift_one", "nodes=3"], "nodes=3 must be even"),
        (["cluster=lab", "node=paper", "batch_per_node=128", "compute_s=0.5"], "node=paper has seconds of its own"),
        (
            ["cluster=lab", "node=paper", "batch_per_node=128", "hierarchical=true"],
            "sends alike; leave hierarchical out",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_says_what_to_type_and_leaves_no_folder(overrides, message, tmp_path):
    refused = config(tmp_path, *QUICK, "nodes=2", "steps=1", *overrides)
    with pytest.raises(ConfigError, match=message):
        loop.run(refused)
    assert not refused.folder.exists() and not combinations.allows(refused)


def test_one_node_pairs_with_none_and_may_have_any_topology(tmp_path):
    alone = config(tmp_path, *QUICK, "algo=decentralized", "algo.topology=shift_one", "nodes=1")
    assert combinations.allows(alone)


def test_a_network_of_somebody_that_a_run_would_train_wrongly_is_refused(tmp_path, monkeypatch):
    """Weight decay moved frozen parameters, and a mean over all batches began anew from a checkpoint."""
    asked = config(tmp_path, *QUICK)
    norm = torch.nn.BatchNorm1d(2)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), norm)
    monkeypatch.setattr(possible.models, "sized_only", lambda config: model)
    possible.check(asked)
    norm.momentum = None
    with pytest.raises(ConfigError, match="1 has momentum=None"):
        possible.check(asked)
    model[0].requires_grad_(False)
    with pytest.raises(ConfigError, match="0.weight is frozen, and a run trains every parameter"):
        loop.run(asked)
    assert not asked.folder.exists()


def test_a_launch_is_refused_before_anything_is_submitted(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="algo=local_sgd mixes weights"):
        launch(["algo=dense,local_sgd", "bucket_mb=1", "data=synthetic"], dry_run=True)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_what_can_be_is_let_through(tmp_path):
    for overrides in (
        ["algo=gtopk", "bucket_mb=1", "scope=bucket", "overlap=on", "hierarchical=true", "nodes=4", "machines=2"],
        ["algo=ddp", "algo.hook=powersgd", "cluster=processes"],
        ["algo=ddp", "algo.hook=powersgd", "nodes=1", "algo.rank=4"],
        ["algo=gtopk", "probe_steps=[1]"],
    ):
        combinations.check(config(tmp_path, *overrides))


def test_ddp_is_refused_where_ranks_are_threads_on_one_gpu(tmp_path, monkeypatch):
    two = config(tmp_path, "algo=ddp", "nodes=2")
    assert combinations.allows(two)
    for here in (1, 2):
        monkeypatch.setattr(threads, "device_of", lambda config, place: torch.device("cuda", place.rank % here))  # noqa: B023
        for nodes, refused in ((1, False), (2, here < 2), (4, True)):
            asked = config(tmp_path, "algo=ddp", f"nodes={nodes}")
            assert combinations.allows(asked) is not refused
    with pytest.raises(ConfigError, match="threads on one GPU; type cluster=processes"):
        combinations.check(asked)
    assert combinations.allows(config(tmp_path, "algo=ddp", "nodes=4", "cluster=processes"))


def test_messages_in_memory_are_refused_where_ranks_have_none_in_common(tmp_path, monkeypatch):
    asked = config(tmp_path, "nodes=2", "cluster.messages=memory")
    assert combinations.allows(asked)
    monkeypatch.setattr(threads, "device_of", lambda config, place: torch.device("cuda", place.rank))
    with pytest.raises(ConfigError, match="a GPU each have NCCL; type cluster.messages=gloo"):
        combinations.check(asked)
    monkeypatch.setattr(threads, "find_place", lambda config: Place(0, 2, 0, 2))
    with pytest.raises(ConfigError, match="processes, which have no memory in common; type cluster.messages=gloo"):
        combinations.check(asked)


def test_threads_on_several_gpus_record_no_graphs(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "device_of", lambda config, place: torch.device("cuda", place.rank % 2))
    monkeypatch.setattr(cuda_graph, "of_first", lambda config: torch.device("cuda", 0))
    assert combinations.allows(config(tmp_path, "cuda_graph=on", "nodes=1"))
    with pytest.raises(ConfigError, match="threads have a GPU each, and cluster=processes is not typed"):
        combinations.check(config(tmp_path, "cuda_graph=on", "nodes=2"))
    assert combinations.allows(config(tmp_path, "cuda_graph=on", "nodes=2", "cluster=processes"))


def test_a_sweep_is_refused_before_its_first_run(tmp_path):
    words = ["algo=dense,local_sgd", "bucket_mb=1", "data=synthetic", "steps=1", "results=runs"]
    done = forked_cli.repro("run", *words, cwd=tmp_path)
    assert done.returncode == 2 and "bucket_mb=1: algo=local_sgd mixes weights" in done.stderr
    assert "Traceback" not in done.stderr and not list(tmp_path.iterdir())


def test_stages_take_a_stated_compute(tmp_path):
    """It was refused with the advice to leave compute_s out, and without it with the advice to type it."""
    words = ["stages=2", "nodes=4", "cluster=lab", "node=stated", "compute_s=0.1", "algo=gtopk", "model=resnet20"]
    combinations.check(config(tmp_path, *words))
    with pytest.raises(ConfigError, match="each stage's compute is timed; leave compute_s out"):
        combinations.check(config(tmp_path, *words[:2], "cluster=processes", *words[4:]))


def test_stages_are_refused_where_torch_is_too_old_for_them(monkeypatch):
    (one,) = compose.compose(["stages=2", "nodes=2", "cluster=processes", "model=resnet20"])
    assert combinations.allows(one)
    monkeypatch.setattr(combinations, "STAGES_NEED", "99")
    with pytest.raises(ConfigError, match="needs torch 99 or later, and this is .*type stages=1"):
        combinations.check(one)
