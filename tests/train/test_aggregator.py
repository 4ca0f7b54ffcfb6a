"""What is made of several algorithms is one of them."""

import itertools
import json
import re
import threading

import pytest
import torch
from algorithm_steps import CHOICES
from thread_ranks import on_ranks
from tiny_runs import QUICK, bits, config, equal

from repro import algorithms
from repro.algorithms import Algorithm
from repro.algorithms._around import Around
from repro.cluster import ranks
from repro.cluster.preempt import Interrupt
from repro.config import compose
from repro.runs import run_folder
from repro.train import loop
from repro.train.buckets import Buckets
from repro.train.hierarchical import Hierarchical
from repro.train.recorder import StepRecorder


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
