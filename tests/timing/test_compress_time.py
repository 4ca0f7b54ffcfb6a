"""The seconds that a node compresses: its own part, and what its peers send."""

import dataclasses
from types import SimpleNamespace

import pytest
import tiny_runs
import torch

from repro.algorithms import oktopk
from repro.comm.collective import Collective
from repro.config.compose import compose
from repro.density import entries
from repro.timing import compress_time, dry_run, one_rank, stand_ins
from repro.timing.before_run import before_a_run
from repro.timing.one_rank import Player
from repro.train import loop


def test_the_rank_that_is_timed_leads_where_ranks_take_turns(monkeypatch):
    """Seven of eight steps of ScaleCom that were timed selected nothing."""
    config, made, steady = compose(["algo=scalecom", "nodes=8"])[0], [], stand_ins.steady

    def counted(*of):
        algorithm = steady(*of)
        select = algorithm.memory.select
        algorithm.memory.select = lambda *what: made.append(0) or select(*what)
        return algorithm

    monkeypatch.setattr(stand_ins, "steady", counted)
    monkeypatch.setattr(compress_time, "repeated", lambda once: [once() for _ in range(3)])
    compress_time.compress(config, 1000)
    assert len(made) == 4  # and a first that warms up


def let_through(monkeypatch) -> list[float]:
    """How many times k entries pass Ok-Topk's threshold of a step before, each time that it has one."""
    found, above = [], oktopk.above

    def counted(x, threshold):
        chosen = above(x, threshold)
        found.append(chosen.value.numel() / entries(0.001, x.numel()))
        return chosen

    monkeypatch.setattr(oktopk, "above", counted)
    return found


def test_a_gradient_that_comes_again_passes_the_threshold_as_before(monkeypatch):
    """The residual grew by the whole gradient at every repeat: hundreds of times k entries were sorted."""
    found = let_through(monkeypatch)
    monkeypatch.setattr(compress_time, "of_peers", lambda *_: 0.0)  # on stand-ins, of another density
    compress_time.compress(compose(["algo=oktopk", "nodes=4"])[0], 100_000)
    assert found and max(found) < 2


def test_so_it_does_before_a_run(monkeypatch, tmp_path):
    found = let_through(monkeypatch)
    words = ("algo=oktopk", "density=0.001", "nodes=2", "steps=1")  # the run's own step sets its threshold
    loop.run(tiny_runs.config(tmp_path, *tiny_runs.QUICK, *words), before_a_run)
    assert found and max(found) < 2


@pytest.mark.parametrize("algo", ["gtopk_exact", "oktopk", "spardl"])
def test_a_rank_does_its_part_again_alone_with_what_its_peers_sent(algo):
    config, m, k = compose([f"algo={algo}", "nodes=4"])[0], 100_000, 100
    _, lone = stand_ins.all_at_once(config.algo, 4, m, k)
    alone = {}
    for name, peers in (("entries", Player(lone.recorder)), ("zeros", dry_run.Echo(0, 4))):
        lone.algorithm.load_state_dict(lone.state)
        alone[name] = [lone.algorithm.step(gradient.clone(), Collective(peers)) for gradient in lone.gradients][-1]
    of_all = alone["entries"].count_nonzero()
    assert k / 2 < of_all <= k, "the k of all ranks"
    assert alone["zeros"].count_nonzero() < of_all / 2, "its own share, among zeros"


def test_what_peers_send_is_charged_where_lengths_are_sent_first(monkeypatch):
    """Of Ok-Topk, exact gTop-k and SparDL it was not: the rank that is timed alone heard of no entries."""
    asked = []
    monkeypatch.setattr(compress_time, "of_peers", lambda config, *_: asked.append(config.algo.name) or 100.0)
    seconds = {
        algo: compress_time.compress(compose([f"algo={algo}", "nodes=4"])[0], 10_000)
        for algo in ("oktopk", "gtopk_exact", "spardl", "gtopk", "topk")
    }
    assert asked == ["oktopk", "gtopk_exact", "spardl"]
    assert all(seconds[algo] > 100 for algo in asked) and seconds["gtopk"] < 100


def test_no_more_ranks_are_run_at_once_than_threads_there_may_be(monkeypatch):
    """Where messages hold a part of k, fewer peers send as much."""
    asked = []
    monkeypatch.setattr(stand_ins, "MOST_THREADS", 4)
    monkeypatch.setattr(compress_time, "of_peers", lambda config, *_: asked.append(config.nodes) or 0.0)
    for nodes in (2, 8):
        compress_time.compress(compose(["algo=spardl", f"nodes={nodes}"])[0], 10_000)
    assert asked == [2, 4]


@pytest.mark.parametrize(("with_entries_s", "with_zeros_s", "expected"), [(3.0, 1.0, 2.0), (1.0, 3.0, 0.0)])
def test_what_peers_cost_is_the_difference_and_never_below_nothing(monkeypatch, with_entries_s, with_zeros_s, expected):
    config = compose(["algo=oktopk", "nodes=4"])[0]
    seconds = {Player: with_entries_s, dry_run.Echo: with_zeros_s}
    monkeypatch.setattr(compress_time, "_period", lambda algorithm, gradients, peers: seconds[type(peers)])
    assert compress_time.of_peers(config, 10_000) == expected
    assert compress_time.of_peers(dataclasses.replace(config, nodes=1), 10_000) == 0, "nobody sends"


@pytest.mark.parametrize("period", [compress_time._period, one_rank._compress_seconds])
def test_what_peers_take_to_hand_over_is_no_compress(monkeypatch, period):
    """A clock that goes on by itself: 2 s in each step, of which 0.5 s are the peers'."""
    now = [0.0]
    algorithm = SimpleNamespace(period=2, load_state_dict=lambda state: None)
    monkeypatch.setattr(compress_time, "clock", lambda: now[0])
    monkeypatch.setattr(one_rank, "clock", lambda: now[0])
    monkeypatch.setattr(compress_time.algorithms, "one_step", lambda *of: step(now, of[-1]))
    monkeypatch.setattr(one_rank, "one_step", lambda *of: step(now, of[-1]))
    peers = SimpleNamespace(seconds=1.0 if period is compress_time._period else 0.0, replies=[], asides=[])
    monkeypatch.setattr(one_rank, "Player", lambda recorder: peers)
    monkeypatch.setattr(compress_time, "Collective", lambda transport: transport)
    monkeypatch.setattr(one_rank, "Collective", lambda transport: transport)
    if period is compress_time._period:
        assert period(algorithm, 2 * [torch.zeros(1)], peers) == 1.5
    else:
        assert period(algorithm, {}, lambda: torch.zeros(1), None) == 1.5


def step(now: list[float], peers) -> None:
    now[0] += 2.0
    peers.seconds += 0.5
