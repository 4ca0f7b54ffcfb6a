"""Invariants that every algorithm must keep; a new file in algorithms/ with its YAML is found and tested here."""

import functools
import importlib
import math

import pytest
import torch
from parallel import on_ranks

from repro import algorithms
from repro.config import about, compose, group_options
from repro.network import seconds

# Those that mix weights are tested in test_mixing.py.
CHOICES = {name: compose([f"algo={name}"])[0].algo for name in group_options("algo")}
NAMES = [name for name, choice in CHOICES.items() if not algorithms.mixes(algorithms.load(choice, 8))]
SPARSE = [name for name in NAMES if CHOICES[name].sparse]
SIZES = [1, 2, 3, 4, 6, 7, 8]
M = 1000

# The settings at which an algorithm with momentum of its own feeds back gradients, and nothing else.
PLAIN = {"dgc": ["algo.momentum=0"], "qadam": ["algo.warmup_steps=0", "algo.beta1=0", "algo.eps=1.0"]}
# How far the update may be from the mean gradient, where entries are -9 to 9: a quantum there, and one back.
ERRORS = {"bytegrad": 2 * 18 / 255, "qsgd": 2 * 9 / 127, "fp16": 9 * 2**-10}

ABOUT = {name: about(name) for name in NAMES}
CONSERVING = [name for name in NAMES if ABOUT[name]["error_feedback"] in ("worker", "worker and owner")]
LOSSY = [name for name in NAMES if ABOUT[name]["family"] in ("quantised", "low rank")]


@functools.cache  # a composition takes a tenth of a second
def algo(name: str, *overrides: str):
    return compose([f"algo={name}", "data=digits", *overrides])[0].algo


def gradients(size: int, steps: int, kind: str, dtype=torch.float32) -> torch.Tensor:
    """[steps, size, M] of integers, so that sums are exact and ties are frequent; kind=normal has neither."""
    source = torch.Generator().manual_seed(size)
    if kind == "normal":
        return torch.randn(steps, size, M, generator=source).to(dtype)
    x = torch.randint(-9, 10, (steps, size, M), generator=source).to(dtype)
    if kind == "few":  # fewer non-zeros than k
        x *= torch.rand(x.shape, generator=source) < 0.002
    elif kind == "zero":
        x.zero_()
    return x


def train(name: str, size: int, x: torch.Tensor, density: float, *overrides: str):
    """Updates [steps, M] and what error feedback holds [M], of each rank."""
    choice = algo(name, *overrides)

    def body(collective):
        algorithm = algorithms.load(choice, M)
        algorithm.density = density
        updates = [algorithm.step(g.clone(), collective).clone() for g in x[:, collective.rank]]
        return torch.stack(updates), held(algorithm.state_dict(), collective.rank)

    return on_ranks(size, body)


def held(state: dict, rank: int) -> torch.Tensor:
    """A rank's residual and, in the chunk that it owns, its server residual."""
    kept, server = state.get("residual", torch.zeros(M)).clone(), state.get("server_residual")
    if server is not None:
        own = slice(rank * len(server), (rank + 1) * len(server))
        kept[own] += server[: len(kept[own])]
    return kept


@pytest.mark.parametrize("kind", ["ties", "few", "zero"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_all_ranks_get_the_same_bits(name, size, kind):
    first, *others = [updates for updates, _ in train(name, size, gradients(size, 3, kind), 0.01)]
    assert all(torch.equal(first.view(torch.int32), other.view(torch.int32)) for other in others)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CONSERVING)
def test_nothing_is_lost(name, size):
    if (name, size) == ("qadam", 1):
        return  # it is Adam, which has no errors to keep: test_one_rank_is_sgd_and_with_1_bit_adam_it_is_adam
    x = gradients(size, 4, "ties")
    ranks = train(name, size, x, 0.01, *PLAIN.get(name, []))
    applied = ranks[0][0].double().sum(0) * size
    kept = torch.stack([residual for _, residual in ranks]).double().sum(0)
    assert torch.allclose(applied + kept, x.double().sum((0, 1)), atol=1e-3)


@pytest.mark.parametrize("size", [4, 6, 8])
def test_the_papers_residual_rule_loses_mass_from_four_ranks_on(size):
    x = gradients(size, 1, "ties") ** 3  # few ties
    ranks = train("gtopk", size, x, 0.1)
    total = ranks[0][0][0] * size + sum(residual for _, residual in ranks)
    lost = (total - x.sum((0, 1))).abs()
    assert lost.sum() > 0
    exact = train("gtopk", size, x, 0.1, "algo.residual=exact")
    total = exact[0][0][0] * size + sum(residual for _, residual in exact)
    assert torch.allclose(total, x.sum((0, 1)), atol=1e-3)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LOSSY])
def test_density_one_is_dense(name):
    x = gradients(4, 2, "ties")
    for updates, _ in train(name, 4, x, 1.0):
        assert torch.allclose(updates, x.mean(1))


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("size", [2, 3, 8])
def test_without_error_feedback_the_update_is_within_the_stated_error(name, size):
    x = gradients(size, 3, "ties")
    updates = train(name, size, x, 1.0)[0][0]
    assert (updates - x.mean(1)).abs().max() <= ERRORS[name]
    assert ABOUT[name]["error_feedback"] == "none"


@pytest.mark.parametrize("name", [name for name in LOSSY if name in CONSERVING])
def test_with_error_feedback_the_same_gradient_again_and_again_arrives(name):
    """What is lost stays bounded, so the mean of T updates is off by that over T."""
    x = gradients(3, 1, "normal").expand(300, 3, M)
    updates = train(name, 3, x, 1.0, *PLAIN.get(name, []))[0][0]
    errors = [(updates[:steps].mean(0) - x[0].mean(0)).norm() / x[0].mean(0).norm() for steps in (30, 300)]
    assert errors[1] < 0.4 * errors[0] and errors[1] < 0.1


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_is_sgd_and_with_1_bit_adam_it_is_adam(name):
    x = gradients(1, 4, "ties")
    alone = train(name, 1, x, 1.0, *(["algo.warmup_steps=2"] if name == "qadam" else []))[0][0]
    if name != "qadam":
        assert torch.equal(alone, x[:, 0])
        return
    weight = torch.nn.Parameter(torch.zeros(M))
    adam = torch.optim.Adam([weight], lr=1.0)
    for gradient, update in zip(x[:, 0], alone, strict=True):
        before = weight.detach().clone()
        weight.grad = gradient
        adam.step()
        assert torch.allclose(before - weight.detach(), update, atol=1e-5)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_tree_and_butterfly_choose_the_same_entries(size):
    x = gradients(size, 3, "ties")
    tree = train("gtopk", size, x[:1], 0.02)[0][0]
    butterfly = train("gtopk_butterfly", size, x[:1], 0.02)[0][0]
    assert torch.equal(tree, butterfly)


@pytest.mark.parametrize("name", SPARSE)
def test_at_most_k_entries_a_rank_reach_the_update(name):
    """Ok-Topk alone does not count: a threshold of earlier steps may let more through."""
    k, size = 10, 4
    updates = train(name, size, gradients(size, 3, "ties"), k / M)[0][0]
    every = {"topk": [k * size] * 3, "dgc": [k * size] * 3, "oktopk": [k, k * size, k * size]}
    most = torch.tensor(every.get(name, [k] * 3))
    assert (updates.count_nonzero(1) <= most).all() and updates.any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_dtype_of_gradient(name, dtype):
    x = gradients(3, 2, "ties", dtype)
    choice = algo(name)

    def body(collective):
        algorithm = algorithms.load(choice, M)
        algorithm.density = 0.05
        return [algorithm.step(g.clone(), collective).clone() for g in x[:, collective.rank]]

    ranks = on_ranks(3, body)
    assert ranks[0][0].dtype == dtype
    assert all(torch.equal(a, b) for rank in ranks for a, b in zip(ranks[0], rank, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_state_saved_and_loaded_goes_on_with_the_same_bits(name):
    x = gradients(4, 4, "ties")
    straight = train(name, 4, x, 0.02)[0][0]
    choice = algo(name)

    def body(collective):
        updates, state = [], None
        for g in x[:, collective.rank]:
            algorithm = algorithms.load(choice, M)  # a new one each step: nothing may live outside the state
            algorithm.density = 0.02
            if state is not None:
                algorithm.load_state_dict(state)
            updates.append(algorithm.step(g.clone(), collective).clone())
            state = algorithm.state_dict()
        return torch.stack(updates)

    assert torch.equal(on_ranks(4, body)[0], straight)


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("name", NAMES)
def test_what_is_counted_is_what_its_cost_says(name, size):
    """Of the third step, in the phase that most steps are in; a bound where messages depend on values.

    Ok-Topk's thresholds are set anew here; what stale ones let through: test_sums_by_owners_cost_what_is_published.
    """
    k, x = 10, gradients(size, 3, "normal")
    choice = algo(name, *(["algo.threshold_every=1"] if name == "oktopk" else []))

    def body(collective):
        algorithm = algorithms.load(choice, M)
        algorithm.density = k / M
        algorithms.skip_warmup(algorithm)
        for gradient in x[:, collective.rank]:
            collective.traffic = type(collective.traffic)()
            algorithm.step(gradient.clone(), collective)
        return collective.traffic, algorithms.messages_depend_on_values(algorithm)

    ranks = on_ranks(size, body)
    module = importlib.import_module(f"repro.algorithms.{choice.module}")
    bytes_, rounds = module.cost(size, M, k, **choice.options)
    most = max(traffic.bytes_sent for traffic, _ in ranks)
    longest = max(sum(done.repeat for done in traffic.rounds) for traffic, _ in ranks)
    if ranks[0][1]:
        assert most <= bytes_ and longest <= rounds and (most > bytes_ / 8 or size == 1)
    else:
        assert (most, longest) == (bytes_, rounds)
    assert (seconds([traffic.rounds for traffic, _ in ranks], 1e-3, 1e-9) > 0) == (size > 1)


# What single algorithms promise beyond that.


@pytest.mark.parametrize("kind", ["ties", "few", "zero", "normal"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", ["gtopk_exact", "gtopk_parameter_server"])
def test_the_true_top_k_of_the_sum_to_the_bit(name, size, kind):
    x = gradients(size, 4, kind)
    for density in (0.005, 0.05, 0.5):
        truth = train("gtopk_from_topk", size, x, density)
        found = train(name, size, x, density)
        for (updates, residual), (expected, kept) in zip(found, truth, strict=True):
            assert torch.equal(updates, expected) and torch.equal(residual, kept)


def sent(name: str, size: int, m: int, k: int, x: torch.Tensor, skip: int) -> float:
    """Mean 4-byte words that the busiest node sends in a step, of all steps but the first."""

    def body(collective):
        algorithm = algorithms.load(CHOICES[name], m)
        algorithm.density = (k + 0.5) / m
        for step, gradient in enumerate(x[:, collective.rank]):
            algorithm.step(gradient.clone(), collective)
            if step + 1 == skip:
                collective.traffic = type(collective.traffic)()
        return collective.traffic.bytes_sent / 4 / (len(x) - skip)

    return max(on_ranks(size, body))


@pytest.mark.parametrize("size", [2, 4, 8])
def test_sums_by_owners_cost_what_is_published(size):
    """Large entries cluster in the last tenth, as in layers, so ranges of equal width would be out of balance."""
    m, k = 100_000, 2_000
    x = torch.randn(8, size, m, generator=torch.Generator().manual_seed(size))
    x[..., -m // 10 :] *= 5
    balanced = 4 * k * (size - 1) / size
    assert 0.9 * balanced < sent("gtopk_exact", size, m, k, x, skip=2) < 1.25 * balanced + 2000  # 2000: histograms
    assert sent("oktopk", size, m, k, x, skip=1) < 6 * k


def test_1_bit_adam_shares_one_momentum_loses_none_of_it_and_freezes_the_variance():
    x, choice = gradients(4, 6, "normal"), algo("qadam", "algo.warmup_steps=3")

    def body(collective):
        algorithm, states = algorithms.load(choice, M), []
        for gradient in x[:, collective.rank]:
            before = collective.traffic.bytes_sent
            algorithm.step(gradient.clone(), collective)
            lost = held(algorithm.state_dict(), collective.rank)
            sent = collective.traffic.bytes_sent - before
            states.append((algorithm.momentum.clone(), lost, algorithm.variance.clone(), sent))
        return states

    ranks = on_ranks(4, body)
    momentum, _, variance, sent = zip(*ranks[0], strict=True)
    lost = [sum(rank[step][1] for rank in ranks) / 4 for step in range(6)]
    for step in range(1, 6):
        expected = 0.9 * momentum[step - 1] + 0.1 * x[step].mean(0) + lost[step - 1]
        assert torch.allclose(momentum[step] + lost[step], expected, atol=1e-5)
        assert all(torch.equal(rank[step][0], momentum[step]) for rank in ranks)
        assert torch.equal(variance[step], variance[step - 1]) == (step >= 3)
        assert (sent[step] < sent[0] / 20) == (step >= 3)


def test_momentum_correction_is_that_of_the_paper():
    """One rank: u = 0.9 u + g, v = v + u; the k largest of v are sent, and leave u and v."""
    x, k = gradients(1, 6, "normal")[:, 0], 50
    u, v = torch.zeros(M), torch.zeros(M)
    updates = train("dgc", 1, x[:, None], k / M, "algo.selector=exact")[0][0]
    for gradient, update in zip(x, updates, strict=True):
        u = 0.9 * u + gradient
        v = v + u
        chosen = v.abs().topk(k).indices
        expected = torch.zeros(M)
        expected[chosen] = v[chosen]
        u[chosen] = v[chosen] = 0
        assert torch.allclose(update, expected, atol=1e-6)


def test_powersgd_finds_what_has_its_rank_and_leaves_vectors_alone():
    shapes = [(20, 5, 3), (20,), (40, 16), (M - 960,)]
    source = torch.Generator().manual_seed(0)

    def gradient() -> torch.Tensor:
        parts = [torch.randn(s[0], 2, generator=source) @ torch.randn(2, math.prod(s[1:]), generator=source)
                 if len(s) > 1 else torch.randn(s, generator=source) for s in shapes]  # fmt: skip
        return torch.cat([part.reshape(-1) for part in parts])

    x = torch.stack([gradient()] * 3)  # the mean of the ranks has rank 2 too
    x = x * torch.tensor([0.5, 1.0, 1.5])[:, None]

    def body(collective):
        algorithm = algorithms.load(CHOICES["powersgd"], M, shapes=shapes)
        update = algorithm.step(x[collective.rank].clone(), collective)
        return update, algorithm.residual, collective.traffic.bytes_sent

    for update, residual, bytes_ in on_ranks(3, body):
        assert torch.allclose(update, x.mean(0), atol=1e-4) and not residual[300:320].any()
        cost = importlib.import_module("repro.algorithms.powersgd").cost(3, M, 1, shapes=shapes)
        assert bytes_ == cost.bytes < 2 / 3 * 2 * 4 * M
    with pytest.raises(algorithms.ConfigError, match="shapes hold 940 entries"):
        algorithms.load(algo("powersgd"), M, shapes=[(940,)])


def test_randomk_draws_alike_on_all_ranks_and_anew_in_each_step():
    x = gradients(3, 3, "normal")
    updates = train("randomk", 3, x, 0.05)[0][0]
    places = [set(update.nonzero().squeeze(1).tolist()) for update in updates]
    assert all(len(place) == 50 for place in places) and not (places[0] == places[1] or places[1] == places[2])
    other = train("randomk", 3, x, 0.05, "seed=1")[0][0]
    assert set(other[0].nonzero().squeeze(1).tolist()) != places[0]
