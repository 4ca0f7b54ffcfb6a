"""Invariants that every algorithm must keep; a new file in algorithms/ with its YAML is found and tested here."""

import pytest
import torch
from parallel import on_ranks

from repro import algorithms
from repro.config import compose, group_options

# Those that mix weights are tested in test_mixing.py.
CHOICES = {name: compose([f"algo={name}"])[0].algo for name in group_options("algo")}
NAMES = [name for name, choice in CHOICES.items() if not algorithms.mixes(algorithms.load(choice, 8))]
SPARSE = [name for name in NAMES if CHOICES[name].sparse]
CONSERVING = [name for name in SPARSE if name != "gtopk"]  # the paper's residual rule loses mass: tested as that
SIZES = [1, 2, 3, 4, 6, 7, 8]
M = 1000


def algo(name: str, *overrides: str):
    return compose([f"algo={name}", "data=digits", *overrides])[0].algo


def gradients(size: int, steps: int, kind: str, dtype=torch.float32) -> torch.Tensor:
    """[steps, size, M] of integers, so that sums are exact and ties are frequent."""
    source = torch.Generator().manual_seed(size)
    x = torch.randint(-9, 10, (steps, size, M), generator=source).to(dtype)
    if kind == "few":  # fewer non-zeros than k
        x *= torch.rand(x.shape, generator=source) < 0.002
    elif kind == "zero":
        x.zero_()
    return x


def train(name: str, size: int, x: torch.Tensor, density: float, *overrides: str):
    """Updates [steps, M] and residual of each rank."""
    choice = algo(name, *overrides)

    def body(collective):
        algorithm = algorithms.load(choice, M)
        algorithm.density = density
        updates = [algorithm.step(g.clone(), collective).clone() for g in x[:, collective.rank]]
        return torch.stack(updates), algorithm.state_dict().get("residual", torch.zeros(M))

    return on_ranks(size, body)


@pytest.mark.parametrize("kind", ["ties", "few", "zero"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_all_ranks_get_the_same_bits(name, size, kind):
    first, *others = [updates for updates, _ in train(name, size, gradients(size, 3, kind), 0.01)]
    assert all(torch.equal(first.view(torch.int32), other.view(torch.int32)) for other in others)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CONSERVING)
def test_nothing_is_lost(name, size):
    x = gradients(size, 4, "ties")
    ranks = train(name, size, x, 0.01)
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


@pytest.mark.parametrize("name", NAMES)
def test_density_one_is_dense_and_one_rank_is_sgd(name):
    x = gradients(4, 2, "ties")
    for updates, _ in train(name, 4, x, 1.0):
        assert torch.allclose(updates, x.mean(1))
    alone = train(name, 1, x[:, :1], 1.0)[0][0]
    assert torch.equal(alone, x[:, 0])


@pytest.mark.parametrize("size", [2, 4, 8])
def test_tree_and_butterfly_choose_the_same_entries(size):
    x = gradients(size, 3, "ties")
    tree = train("gtopk", size, x[:1], 0.02)[0][0]
    butterfly = train("gtopk_butterfly", size, x[:1], 0.02)[0][0]
    assert torch.equal(tree, butterfly)


@pytest.mark.parametrize("name", SPARSE)
def test_at_most_k_entries_a_rank_reach_the_update(name):
    k, size = 10, 4
    updates = train(name, size, gradients(size, 3, "ties"), k / M)[0][0]
    most = k * size if name == "topk" else k
    assert (updates.count_nonzero(1) <= most).all() and updates.any()


@pytest.mark.parametrize("name", SPARSE)
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
