"""What may be combined is decided before any rank starts, and what is made of several algorithms is one of them."""

import itertools
import json
import re
import threading

import forked_cli
import pytest
import torch
from algorithm_steps import CHOICES
from thread_ranks import on_ranks
from tiny_runs import QUICK, bits, config, equal

from repro import algorithms
from repro.algorithms import Algorithm
from repro.algorithms._around import Around
from repro.cluster import ranks, threads
from repro.cluster.environment import Place
from repro.cluster.preempt import Interrupt
from repro.commands.launch import launch
from repro.config import compose
from repro.config.groups import group_options
from repro.config.schema import ConfigError
from repro.runs import run_folder
from repro.train import aggregator, cuda_graph, loop
from repro.train.buckets import Buckets
from repro.train.hierarchical import Hierarchical
from repro.train.recorder import StepRecorder

TRAINED = [name for name in group_options("experiment") if name not in ("tradeoff", "tradeoff_dilated", "dilated")]


@pytest.mark.parametrize("name", TRAINED)
def test_what_an_experiment_sweeps_is_possible(name: str) -> None:
    """A sweep is checked before its first run: random-k with momentum was refused, and kept all of momentum out."""
    for one in compose.compose([f"experiment={name}", "seed=0", "nodes=4"]):
        aggregator.check(one)


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
        (["algo=gtopk", "algo.mask=selected"], "type algo.correction=0.9"),
        (["algo=topk", "algo.clip=1", "bucket_mb=1", "scope=bucket"], "leave bucket_mb and hierarchical out"),
        (["algo=dense", "clip_grad=1", "bucket_mb=1", "overlap=on"], "sends parts of it before it is there; type clip"),
        (["algo=ddp", "clip_grad=1"], "algo=ddp sends parts of it before it is there; type clip_grad=0, or algo=dense"),
        (["algo=gtopk_corrected", "probe_steps=[1]"], "Leave probe_steps out"),
        (["algo=gtopk", "cuda_graph=on"], "cuda_graph=on: needs a GPU, .*Type cuda_graph=off"),
        (["algo=ddp", "cuda_graph=on"], "cuda_graph=on: algo=ddp sends within backward"),
        (["model=alexnet", "data.image_size=64", "cuda_graph=on"], "cuda_graph=on: model=alexnet has dropout"),
        (["algo=decentralized", "algo.topology=shift_one", "nodes=3"], "nodes=3 must be even"),
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
    assert not refused.folder.exists() and not aggregator.allows(refused)


def test_a_launch_is_refused_before_anything_is_submitted(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="algo=local_sgd mixes weights"):
        launch(["algo=dense,local_sgd", "bucket_mb=1", "data=synthetic"], dry_run=True)
    assert not list(tmp_path.rglob("*.jsonl"))


def test_what_can_be_is_let_through(tmp_path):
    for overrides in (
        ["algo=gtopk", "bucket_mb=1", "scope=bucket", "overlap=on", "hierarchical=true", "nodes=4", "machines=2"],
        ["algo=ddp", "algo.hook=powersgd", "cluster=processes"],
        ["algo=ddp", "algo.hook=powersgd", "nodes=1"],
        ["algo=gtopk", "probe_steps=[1]"],
    ):
        aggregator.check(config(tmp_path, *overrides))


def test_ddp_is_refused_where_ranks_are_threads_on_one_gpu(tmp_path, monkeypatch):
    two = config(tmp_path, "algo=ddp", "nodes=2")
    assert aggregator.allows(two)
    for here in (1, 2):
        monkeypatch.setattr(threads, "device_of", lambda config, place: torch.device("cuda", place.rank % here))  # noqa: B023
        for nodes, refused in ((1, False), (2, here < 2), (4, True)):
            asked = config(tmp_path, "algo=ddp", f"nodes={nodes}")
            assert aggregator.allows(asked) is not refused
    with pytest.raises(ConfigError, match="threads on one GPU; type cluster=processes"):
        aggregator.check(asked)
    assert aggregator.allows(config(tmp_path, "algo=ddp", "nodes=4", "cluster=processes"))


def test_messages_in_memory_are_refused_where_ranks_have_none_in_common(tmp_path, monkeypatch):
    asked = config(tmp_path, "nodes=2", "cluster.messages=memory")
    assert aggregator.allows(asked)
    monkeypatch.setattr(threads, "device_of", lambda config, place: torch.device("cuda", place.rank))
    with pytest.raises(ConfigError, match="a GPU each have NCCL; type cluster.messages=gloo"):
        aggregator.check(asked)
    monkeypatch.setattr(threads, "find_place", lambda config: Place(0, 2, 0, 2))
    with pytest.raises(ConfigError, match="processes, which have no memory in common; type cluster.messages=gloo"):
        aggregator.check(asked)


def test_threads_on_several_gpus_record_no_graphs(tmp_path, monkeypatch):
    for module in (threads, cuda_graph):
        monkeypatch.setattr(module, "device_of", lambda config, place: torch.device("cuda", place.rank % 2))
    assert aggregator.allows(config(tmp_path, "cuda_graph=on", "nodes=1"))
    with pytest.raises(ConfigError, match="threads have a GPU each, and cluster=processes is not typed"):
        aggregator.check(config(tmp_path, "cuda_graph=on", "nodes=2"))
    assert aggregator.allows(config(tmp_path, "cuda_graph=on", "nodes=2", "cluster=processes"))


def test_a_sweep_is_refused_before_its_first_run(tmp_path):
    words = ["algo=dense,local_sgd", "bucket_mb=1", "data=synthetic", "steps=1", "results=runs"]
    done = forked_cli.repro("run", *words, cwd=tmp_path)
    assert done.returncode == 2 and "bucket_mb=1: algo=local_sgd mixes weights" in done.stderr
    assert "Traceback" not in done.stderr and not list(tmp_path.iterdir())


class Odd(Algorithm):
    """Answers nothing as the base class does."""

    density, period, delay, mixes, wraps, messages_depend_on_values = 0.5, 3, 2, True, True, True
    selected = 7

    def __init__(self, parameters: int, device: torch.device | str = "cpu"):
        self.seen: list[object] = []

    def step(self, gradient, collective):
        self.seen.append(self.density)
        return gradient

    def begin(self, parameters):
        self.seen.append("begin")

    def mix(self, parameters, collective):
        self.seen.append("mix")

    def wrap(self, model, collective):
        self.seen.append("wrap")
        return torch.nn.Sequential(model)

    def skip_warmup(self):
        self.seen.append("skip_warmup")

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def test_a_recorder_answers_all_as_what_it_records(tmp_path):
    def body(collective):
        odd = Odd(8)
        recorder = StepRecorder(odd, collective, [5], tmp_path / "recorded.json", lambda: 1)
        for name, default in vars(Algorithm).items():
            if not name.startswith("_") and not isinstance(default, staticmethod):
                assert name in vars(Around) or name in vars(recorder), name
                assert callable(default) or getattr(recorder, name) == getattr(odd, name), name
        recorder.density = 0.25
        recorder.begin(torch.zeros(8))
        assert isinstance(recorder.wrap(torch.nn.Linear(1, 1), collective), torch.nn.Sequential)
        recorder.skip_warmup()
        algorithms.one_step(recorder, torch.zeros(8), collective)
        assert recorder.state_dict() == {"seen": ["begin", "wrap", "skip_warmup", 0.25, "mix"]}
        recorder.load_state_dict({"seen": []})
        assert odd.seen == []

    on_ranks(1, body)


@pytest.mark.parametrize("name", ["topk", "onebit"])
def test_what_an_owner_keeps_is_not_recorded_as_lost(name, tmp_path):
    """Four chunks of 1,001 entries, the last of which is shorter: what onebit rounds there stays with its owner."""
    m, file = 1001, tmp_path / "recorded.json"

    def body(collective):
        at = itertools.count(1)
        recorder = StepRecorder(algorithms.load(CHOICES[name], m), collective, [3], file, lambda: next(at))
        source = torch.Generator().manual_seed(collective.rank)
        for _ in range(3):
            recorder.density = 0.01
            recorder.step(torch.randn(m, generator=source), collective)

    on_ranks(4, body)
    (record,) = json.loads(file.read_text())
    assert record["lost_mass"] < 1e-5 * record["held_mass"]


@pytest.mark.parametrize("selector", ["exact", "chunked", "gaussian"])
def test_the_recorded_selection_is_the_one_that_was_made(selector, tmp_path):
    """It was the k largest entries, whatever an approximate selector took: chunked had 6 of 20 others."""
    file = tmp_path / "recorded.json"

    def body(collective):
        algorithm = algorithms.load(compose.algorithm("topk", {"selector": selector}), 1000)
        recorder = StepRecorder(algorithm, collective, [1], file, lambda: 1)
        recorder.density = 0.01
        recorder.step(torch.randn(1000, generator=torch.Generator().manual_seed(collective.rank)), collective)

    on_ranks(2, body)
    (record,) = json.loads(file.read_text())
    sent = {index for selection in record["selections"] for index in selection["index"]}
    assert sent == set(record["result"]["index"])
    mass = sum(abs(value) for selection in record["selections"] for value in selection["value"])
    assert record["selected_mass"] == pytest.approx(mass)


def test_a_step_that_was_skipped_is_counted_in_what_is_recorded(tmp_path):
    """The recorder counted the steps that it saw, and recorded another one than was asked for."""
    file = tmp_path / "recorded.json"

    def body(collective):
        made = iter([1, 3, 4])
        recorder = StepRecorder(algorithms.load(CHOICES["topk"], 100), collective, [3], file, lambda: next(made))
        for size in (1.0, 2.0, 3.0):
            recorder.density = 0.01
            recorder.step(torch.full((100,), size), collective)

    on_ranks(2, body)
    (record,) = json.loads(file.read_text())
    assert record["step"] == 3 and record["held_mass"] == pytest.approx(2 * (100 * 2 + 99 * 1))


def test_buckets_and_levels_answer_as_their_parts():
    both = Buckets([slice(4, 8), slice(0, 4)], [Odd(4), Odd(4)])
    levels = Hierarchical(lambda: Odd(8), ["a", "a"], 0, period=3)
    follower = Hierarchical(lambda: Odd(8), ["a", "a"], 1, period=3)
    assert (both.period, both.delay, both.messages_depend_on_values, both.density) == (3, 2, True, 0.5)
    assert (both.selected, levels.selected, follower.selected) == (14, 7, None)
    assert levels.period == follower.period == 3
    for algorithm in (both, levels, follower):
        algorithm.skip_warmup()
    assert [part.seen for part in both.parts] == [["skip_warmup"]] * 2 and levels.inner.seen == ["skip_warmup"]
    dense = Buckets([slice(0, 4)], [Algorithm(4)])
    assert dense.selected is None


@pytest.mark.parametrize("algo", ["dense", "topk"])
def test_a_run_on_two_levels_goes_on_with_the_machines_that_it_began_with(algo, tmp_path, monkeypatch, capfd):
    """SLURM may place ranks otherwise: leaders had no state, and it began again from its first step."""
    layout = [0, 0, 1, 1]

    def host() -> str:
        number = re.fullmatch(r"rank-(\d)", threading.current_thread().name)
        return f"machine-{layout[int(number[1])]}" if number else "here"

    monkeypatch.setattr(ranks.socket, "gethostname", host)
    words = [*QUICK, f"algo={algo}", "nodes=4", "hierarchical=true", "steps=12"]
    whole, run = config(tmp_path / "whole", *words), config(tmp_path / "cut", *words)
    assert loop.run(whole)["state"] == "done"
    assert "between 2 machines" in capfd.readouterr().err
    told = Interrupt()
    told.set()
    assert loop.run(run, None, told)["state"] == "preempted"
    layout[:] = [0, 0, 0, 1]
    assert loop.run(run, None, Interrupt())["state"] == "done"
    assert not list(run.folder.glob("damaged*")) and equal(bits(run.folder), bits(whole.folder))
    capfd.readouterr()
    for now, said in (
        ([0, 0, 1, 1], ""),
        ([0, 0, 0, 0], "its ranks on 2 machines; they are on 1 now"),
        ([7, 7, 8, 8], ""),
    ):
        layout[:] = now
        assert loop.run(run, None, Interrupt())["state"] == "done"
        assert (said in capfd.readouterr().err) if said else ("its ranks on" not in capfd.readouterr().err)


@pytest.mark.parametrize(
    "choices",
    [
        ["bucket_mb=0.3", "scope=bucket"],
        ["nodes=4", "machines=2", "hierarchical=true"],
        ["nodes=4", "machines=2", "hierarchical=true", "bucket_mb=0.3", "scope=bucket", "overlap=on"],
        ["probe_steps=[2]"],
    ],
    ids=" ".join,
)
def test_a_run_says_what_was_selected_whatever_its_algorithm_is_in(choices, tmp_path):
    run = config(tmp_path, *QUICK, "algo=topk", "nodes=2", "steps=3", *choices)
    assert loop.run(run)["state"] == "done"
    lines = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    assert [line["selected"] for line in lines] == [line["k"] for line in lines] and len(lines) == 3
