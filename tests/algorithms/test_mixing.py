"""Algorithms that mix weights: one rank is SGD, the mean is kept, resume is exact, evaluation is of the average."""

import math

import pytest
import torch
from algorithm_steps import CHOICES
from thread_ranks import on_ranks
from tiny_runs import latest

from repro import algorithms
from repro.comm.collective import Collective
from repro.config.compose import algorithm as choice
from repro.config.compose import compose
from repro.config.schema import Config, ConfigError
from repro.runs import checkpoint, run_folder
from repro.timing import dry_run
from repro.timing.before_run import before_a_run
from repro.train import evaluation, loop
from repro.train.replica import Replica

M = 600
IMAGES = ["data=synthetic", "data.image_size=8", "data.train_images=64", "data.test_images=16"]
TINY = [*IMAGES, "batch_per_node=4", "wandb.mode=disabled", "lr_warmup_epochs=0"]


NAMES = [name for name, choice in CHOICES.items() if algorithms.of(choice).mixes]
# Two bits of what each rank alone wants, which is not zero where their mean is; and few of 600 entries in 8 exchanges.
COARSE = {"sparseloco": ({"period": 5, "top": 300}, 0.25)}


def train(
    name: str, size: int, steps: int, anew: bool = False, lr: float = 0.1, over="memory", **options
) -> list[torch.Tensor]:
    """Each rank's weights [steps, M] on its own quadratic, whose minimum is its own; `anew`: reloaded every step."""
    algo = choice(name, options)
    goals = torch.randn(size, M, generator=torch.Generator().manual_seed(1))

    def body(collective):
        algorithm, weights, seen = algorithms.load(algo, M), torch.zeros(M), []
        for _ in range(steps):
            update = algorithm.step(weights - goals[collective.rank], collective)
            weights -= lr * update
            algorithm.mix(weights, collective)
            seen.append(weights.clone())
            if anew:
                state = algorithm.state_dict()
                algorithm = algorithms.load(algo, M)
                algorithm.load_state_dict(state)
        return torch.stack(seen)

    return on_ranks(size, body, over)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_gloo_carries_what_memory_does(name, size):
    """To the order of the terms of a sum."""
    for one, other in zip(*(train(name, size, 20, over=over) for over in ("gloo", "memory")), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_is_sgd(name):
    (weights,) = train(name, 1, 20)
    goal = torch.randn(1, M, generator=torch.Generator().manual_seed(1))[0]
    expected = torch.zeros(M)
    for step in range(20):
        expected -= 0.1 * (expected - goal)
        assert torch.equal(weights[step], expected)


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_ranks_that_pull_apart_stay_together_and_their_mean_comes_to_the_mean_of_their_minima(name, size):
    options, off = COARSE.get(name, ({}, 0.1))
    ranks = torch.stack(train(name, size, 120, **options))[:, -1]
    goals = torch.randn(size, M, generator=torch.Generator().manual_seed(1))
    apart = (ranks - ranks.mean(0)).square().sum(1).mean().sqrt()
    alone = (goals - goals.mean(0)).square().sum(1).mean().sqrt()
    assert apart < 0.75 * alone
    assert (ranks.mean(0) - goals.mean(0)).norm() < off * goals.mean(0).norm()


@pytest.mark.parametrize("name", NAMES)
def test_state_saved_and_loaded_goes_on_with_the_same_bits(name):
    straight, cut = (train(name, 4, 20, anew=anew) for anew in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(straight, cut, strict=True))


def config(folder, *overrides: str) -> Config:
    return compose([*TINY, f"results={folder}", *overrides])[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_evaluates_the_average_and_says_how_far_the_ranks_are_from_it(name, tmp_path):
    run = config(tmp_path, f"algo={name}", "nodes=4", "steps=3", "compare_every=1")
    assert loop.run(run)["state"] == "done"
    (line,) = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "eval"]
    _, folder = latest(run.folder)
    files = [checkpoint.load(folder, f"rank-0000{rank}.pt", torch.device("cpu")) for rank in range(4)]
    own = torch.stack([file["replica"]["parameters"] for file in files])
    expected = (own - own.mean(0)).square().sum(1).mean().sqrt().item()
    assert line["consensus_distance"] == pytest.approx(expected, rel=1e-4)
    assert line["consensus_distance"] > 0


def test_averaged_gives_the_mean_and_puts_back_what_was_there():
    def body(collective):
        own = torch.full((4,), float(collective.rank))
        with evaluation.averaged([own], collective) as (distance,):
            inside = own.clone()
        return own, inside, distance

    for rank, (own, inside, distance) in enumerate(on_ranks(3, body)):
        assert own.tolist() == [rank] * 4 and inside.tolist() == [1.0] * 4
        assert distance == pytest.approx(math.sqrt(4 * (1 + 0 + 1) / 3))


def test_local_sgd_averages_every_h_steps_and_reports_the_mean_step(tmp_path):
    run = config(tmp_path, "algo=local_sgd", "algo.period=3", "nodes=2", "steps=6")
    summary = loop.run(run)
    lines = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    sent = [line["bytes_sent"] for line in lines]
    assert sent == [0, 0, sent[2], 0, 0, sent[2]] and sent[2] > 0
    assert summary["bytes_sent_per_step"] == sent[2] / 3
    ranks = torch.stack(train("local_sgd", 3, 6, period=3))
    assert torch.equal(ranks[0, 2], ranks[1, 2]) and not torch.equal(ranks[0, 3], ranks[1, 3])
    (rounds, *_) = dry_run.all_rounds(run.algo, 2, 1000, 1)
    assert len(rounds) == 1  # of a period of three steps
    with pytest.raises(ConfigError, match="at least 1"):
        algorithms.load(choice("local_sgd", {"period": 0}), M)


def test_a_replica_of_its_own_is_restored():
    mine, other = (Replica(torch.nn.Linear(3, 2), 0.9, 0.0) for _ in range(2))
    mine.apply(torch.ones(8), 0.1)
    other.load_state_dict(mine.state_dict())
    assert torch.equal(mine.parameters, other.parameters) and torch.equal(mine.velocity, other.velocity)


@pytest.mark.parametrize("topology", ["all", "ring", "shift_one", "random_pairs"])
def test_mixing_with_peers_keeps_the_mean_of_all_ranks(topology):
    """Against the same weights never mixed: SGD on quadratics is linear, so the means move alike."""
    mixed = torch.stack(train("decentralized", 4, 10, topology=topology)).double().mean(0)
    goals = torch.randn(4, M, generator=torch.Generator().manual_seed(1)).double()
    expected = goals.mean(0) * (1 - 0.9 ** torch.arange(1, 11)[:, None])
    assert torch.allclose(mixed, expected, atol=1e-5)


@pytest.mark.parametrize("topology, size", [("all", 2), ("all", 5), ("ring", 2), ("ring", 5), ("random_pairs", 4)])
def test_the_cost_of_each_topology_is_what_is_sent(topology, size):
    """That of `all` was an all-gather's, where the ranks make an all-reduce."""
    algo = choice("decentralized", {"topology": topology})

    def body(collective):
        algorithms.load(algo, M).mix(torch.zeros(M), collective)
        return collective.traffic.bytes_sent, sum(done.repeat for done in collective.traffic.rounds)

    assert max(on_ranks(size, body)) == algorithms.cost(algo, size, M, 1)


def test_odd_ranks_cannot_be_paired():
    with pytest.raises(ConfigError, match="must be even"):
        train("decentralized", 3, 1, topology="shift_one")


def test_neighbours_know_each_others_quantised_weights_to_the_bit():
    algo = CHOICES["low_precision_decentralized"]

    def body(collective):
        algorithm, weights = algorithms.load(algo, M), torch.zeros(M)
        for step in range(5):
            weights += torch.randn(M, generator=torch.Generator().manual_seed(10 * step + collective.rank))
            algorithm.mix(weights, collective)
        return weights, algorithm.known

    ranks = on_ranks(4, body)
    for rank, (weights, known) in enumerate(ranks):
        assert torch.equal(known[0], weights)
        assert torch.equal(known[1], ranks[rank - 1][0]) or torch.equal(known[1], ranks[(rank + 1) % 4][0])
        assert {tuple(row[:3].tolist()) for row in known[1:]} == {
            tuple(ranks[(rank + side) % 4][0][:3].tolist()) for side in (-1, 1)
        }


def test_a_background_average_is_applied_as_late_as_was_said():
    ranks = torch.stack(train("async_average", 2, 4, period=4, delay=2))
    goals = torch.randn(2, M, generator=torch.Generator().manual_seed(1))
    alone = goals[:, None] * (1 - 0.9 ** torch.arange(1, 5)[:, None])
    correction = alone[:, 1].mean(0) - alone[:, 1]
    assert torch.allclose(ranks[:, :3], alone[:, :3], atol=1e-6)
    assert torch.allclose(ranks[:, 3], alone[:, 3] + correction, atol=1e-6)


@pytest.mark.parametrize("anew", [False, True])
def test_a_background_average_is_counted_once_over_a_resume(anew):
    """Its messages were counted in the step that applies it, and gone if a run went on from before that step."""

    def body(collective):
        algorithm, weights = algorithms.load(choice("async_average", {"period": 4, "delay": 2}), M), torch.zeros(M)
        for step in range(4):
            algorithm.mix(weights, collective)
            if step == 2 and anew:
                state = algorithm.state_dict()
                algorithm = algorithms.load(choice("async_average", {"period": 4, "delay": 2}), M)
                algorithm.load_state_dict(state)
                collective = Collective(collective.transport)
        return collective.traffic.bytes_sent, collective.traffic.messages, len(collective.traffic.rounds)

    assert on_ranks(2, body) == 2 * [(4 * M, 2, 1)]


def test_a_background_average_is_counted_and_hidden(tmp_path):
    run = config(tmp_path, "algo=async_average", "nodes=2", "steps=4")
    loop.run(run, before_a_run)
    lines = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    sent = [line["bytes_sent"] for line in lines]
    assert sent[:3] == [0, 0, 0] and sent[3] > 0
    (rounds, *_) = dry_run.all_rounds(run.algo, 2, 1000, 1)
    assert [done.sent * done.repeat for done in rounds] == [4000]
    (time,) = [line for line in run_folder.read_metrics(run.folder) if line["kind"] == "iteration_time"]
    assert 0 < time["hidden_s"] <= time["communicate_s"]
