"""What single algorithms promise beyond the invariants of all."""

import math

import pytest
import torch
from algorithm_steps import CHOICES, M, gradients, held, train
from thread_ranks import on_ranks

from repro import algorithms
from repro.algorithms import ddp
from repro.comm.collective import Collective
from repro.config import compose
from repro.config.schema import ConfigError
from repro.density import entries


@pytest.mark.parametrize("route", ["tree", "butterfly"])
@pytest.mark.parametrize("size", [3, 4, 6, 8])
def test_the_papers_residual_rule_loses_mass_from_three_ranks_on(size, route):
    x = gradients(size, 1, "normal")
    ranks = train("gtopk", size, x, 0.1, route=route)
    total = ranks[0][0][0] * size + sum(residual for _, residual in ranks)
    lost = (total - x.sum((0, 1))).abs()
    assert lost.sum() > 1  # rounding is a thousand times less
    exact = train("gtopk", size, x, 0.1, route=route, residual="exact")
    total = exact[0][0][0] * size + sum(residual for _, residual in exact)
    assert torch.allclose(total, x.sum((0, 1)), atol=1e-3)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_tree_and_butterfly_choose_the_same_entries(size):
    x = gradients(size, 3, "ties")
    tree = train("gtopk", size, x[:1], 0.02)[0][0]
    butterfly = train("gtopk_butterfly", size, x[:1], 0.02)[0][0]
    assert torch.equal(tree, butterfly)


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


@pytest.mark.parametrize("density", [0.002, 0.05])
def test_ok_topk_sets_its_thresholds_anew_when_the_density_changes(density):
    """A threshold of density 0.01 would let too many or too few pass until it is set again, 29 steps later."""
    size, x = 2, gradients(2, 6, "normal")

    def body(collective):
        algorithm, kept = algorithms.load(CHOICES["oktopk"], M), []
        for step, gradient in enumerate(x[:, collective.rank]):
            algorithm.density = 0.01 if step < 3 else density
            kept.append(int(algorithm.step(gradient.clone(), collective).count_nonzero()))
        return kept[3], entries(density, M)

    for kept, k in on_ranks(size, body):
        assert kept == k


def test_1_bit_adam_shares_one_momentum_loses_none_of_it_and_freezes_the_variance():
    x, choice = gradients(4, 6, "normal"), compose.algorithm("qadam", {"warmup_steps": 3})

    def body(collective):
        algorithm, states = algorithms.load(choice, M), []
        for gradient in x[:, collective.rank]:
            before = collective.traffic.bytes_sent
            algorithm.step(gradient.clone(), collective)
            lost = held(algorithm, collective.rank)
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
    updates = train("dgc", 1, x[:, None], k / M, selector="exact")[0][0]
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
        cost = algorithms.of(CHOICES["powersgd"]).cost(3, M, 1, shapes=shapes)
        assert bytes_ == cost.bytes < 2 / 3 * 2 * 4 * M
    with pytest.raises(algorithms.ConfigError, match="shapes hold 940 entries"):
        algorithms.load(CHOICES["powersgd"], M, shapes=[(940,)])


def test_randomk_draws_alike_on_all_ranks_and_anew_in_each_step():
    x = gradients(3, 3, "normal")
    updates = train("randomk", 3, x, 0.05)[0][0]
    places = [set(update.nonzero().squeeze(1).tolist()) for update in updates]
    assert all(len(place) == 50 for place in places) and not (places[0] == places[1] or places[1] == places[2])
    other = train("randomk", 3, x, 0.05, seed=1)[0][0]
    assert set(other[0].nonzero().squeeze(1).tolist()) != places[0]


def test_scalecoms_leaders_take_turns_and_all_ranks_send_what_the_leader_selected():
    x = gradients(3, 4, "normal")
    held = torch.zeros(3, M)
    for step, update in enumerate(train("scalecom", 3, x, 0.05)[0][0]):
        held += x[step]
        place = held[step % 3].abs().topk(50).indices
        assert torch.equal(update.nonzero().squeeze(1), place.sort().values)
        assert torch.allclose(update[place], held[:, place].mean(0), atol=1e-6)
        held[:, place] = 0


def test_scalecoms_messages_have_one_size_also_where_the_leader_selects_fewer_entries():
    def sent(kind):
        def body(collective):
            algorithm = algorithms.load(CHOICES["scalecom"], M)
            algorithm.density = 0.05
            algorithm.step(gradients(3, 1, kind)[0, collective.rank].clone(), collective)
            return algorithm.selected, collective.traffic.bytes_sent

        return on_ranks(3, body)

    (few, sparse), (usual, full) = (zip(*sent(kind), strict=True) for kind in ("few", "normal"))
    assert set(usual) == {50} and max(few) < 50 and sparse == full


def test_scalecoms_filter_takes_in_a_part_of_what_a_step_leaves():
    x, beta = gradients(2, 3, "normal"), 0.25
    held = torch.zeros(2, M)
    ranks = train("scalecom", 2, x, 0.05, beta=beta)
    for step, update in enumerate(ranks[0][0]):
        sent = (held + x[step]) * (update != 0)
        held = (1 - beta) * held + beta * (held + x[step] - sent)
    assert update.any() and torch.allclose(torch.stack([residual for _, residual in ranks]), held, atol=1e-6)


def test_1_bit_adam_leaves_entries_without_a_gradient_in_the_warm_up_where_they_are():
    """The signs give each entry the mean of its bucket, and eps alone would divide that."""
    x, choice = gradients(4, 12, "normal"), compose.algorithm("qadam", {"warmup_steps": 6})
    x[:, :, 3] = 0  # always
    x[:6, :, 5] = 0  # in the warm-up

    def body(collective):
        algorithm = algorithms.load(choice, M)
        return torch.stack([algorithm.step(g.clone(), collective).clone() for g in x[:, collective.rank]])

    updates = on_ranks(4, body)[0]
    assert not updates[:, [3, 5]].any() and updates.abs().max() < 100
    with pytest.raises(ConfigError, match="leaves eps alone to divide by"):
        algorithms.load(compose.algorithm("qadam", {"warmup_steps": 0}), M)


@pytest.mark.parametrize("name", ["gtopk_exact", "oktopk", "powersgd", "onebit", "qadam"])
def test_a_state_that_was_loaded_to_another_device_comes_to_that_of_the_algorithm(name):
    """As torch.load(..., map_location="cpu") gives it to a run on a GPU."""
    choice = compose.algorithm(name, {"warmup_steps": 1} if name == "qadam" else {})
    x = gradients(2, 3, "normal")

    def body(collective):
        algorithm = algorithms.load(choice, M)
        for gradient in x[:, collective.rank]:
            algorithm.step(gradient.clone(), collective)
        return algorithm.state_dict()

    state = on_ranks(2, body)[0]
    there = algorithms.load(choice, M, "meta")
    there.load_state_dict(state)
    devices = [one.device.type for one in tensors(there.state_dict())]
    assert devices and set(devices) == {"meta"}


def tensors(state):
    """All tensors in a state, however deep."""
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else []
    return [state] if isinstance(state, torch.Tensor) else [one for part in parts for one in tensors(part)]


@pytest.mark.parametrize("selector", ["exact", "sampled", "gaussian", "chunked", "mstopk"])
def test_spardl_serves_buckets_of_fewer_entries_than_nodes(selector):
    x = torch.ones(3, 2, 1)
    choice = compose.algorithm("spardl", {"selector": selector})

    def body(collective):
        algorithm = algorithms.load(choice, 1)
        return [float(algorithm.step(g.clone(), collective)) for g in x[:, collective.rank]]

    for updates in on_ranks(2, body):
        assert 0 < sum(updates) <= 3


@pytest.mark.parametrize(("shapes", "sent"), [([(210,), (3, 3)], 1), ([(100, 100)], 2), ([(100, 100), (210,)], 3)])
def test_powersgds_hook_sums_nothing_where_there_is_nothing(shapes, sent):
    """Empty sums were counted as rings, with their headers."""
    found = ddp.factors(shapes, 1)
    assert len(found) == sent and all(found)


def test_half_a_sum_beyond_half_precision_is_a_mean_within_it():
    """DDP's own hook divides before it sums."""
    (mean, *_) = train("ddp", 4, torch.full((1, 4, M), 30_000.0), 1.0, hook="fp16")[0][0]
    assert (mean == 30_000).all()


def test_oktopks_owners_are_balanced_anew_when_it_is_time() -> None:
    """Large entries move from the first half of the vector to the second; their owners follow at every second step."""
    m, size = 64, 4

    def body(collective: Collective):
        algorithm = algorithms.load(compose.algorithm("oktopk", {"space_every": 2}), m)
        algorithm.density, found = 0.25, []
        for step in range(3):
            gradient = 1e-3 * torch.ones(m)
            where = slice(0, 32) if step < 2 else slice(32, 64)
            gradient[where] = torch.arange(1.0, 33.0)
            algorithm.step(gradient, collective)
            found.append(algorithm.boundaries.clone())
        return found

    for first, second, third in on_ranks(size, body):
        assert torch.equal(first, second) and not torch.equal(second, third)
        assert third[1] > first[1]


def test_the_variance_of_qadam_keeps_the_correction_of_the_step_at_which_it_was_frozen() -> None:
    choice = compose.algorithm("qadam", {"warmup_steps": 3})

    def body(collective):
        adam = algorithms.load(choice, 16)
        for _ in range(6):
            update = adam.step(torch.ones(16), collective)
        return update

    assert torch.allclose(on_ranks(2, body)[0], torch.ones(16), atol=1e-3)


def test_qsgds_noise_is_another_in_each_step_and_on_each_rank():
    """Noise that came again would not average out: rounding would be a bias."""
    x = torch.full((200, 2, M), 0.3)
    x[:, :, ::2] = 1.0  # the largest of each bucket, so that 0.3 lies between two levels
    updates = train("qsgd", 2, x, 1.0, bits=4)[0][0][:, 1::2]
    assert len(updates.unique(dim=0)) == len(updates)
    apart = updates.mean(0) - 0.3
    spread = updates.std(0).mean().item() / len(updates) ** 0.5
    assert spread > 0 and apart.abs().max() < 6 * spread
    seeds = on_ranks(2, seeds_of_qsgd)
    assert len({seed for of_rank in seeds for seed in of_rank}) == 6


def seeds_of_qsgd(collective):
    """Those from which the noise of three steps is drawn on this rank."""
    algorithm, seeds = algorithms.load(CHOICES["qsgd"], M), []
    for _ in range(3):
        algorithm.step(torch.linspace(-1, 1, M), collective)
        seeds.append(algorithm.generator.initial_seed())
    return seeds
