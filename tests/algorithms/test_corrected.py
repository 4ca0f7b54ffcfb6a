"""Momentum before selection: what leaves the velocities, what is conserved, and when it is plain momentum."""

import pytest
import torch
from algorithm_steps import CHOICES, M, gradients, train
from thread_ranks import on_ranks

from repro import algorithms
from repro.config import compose
from repro.config.schema import ConfigError
from repro.state_form import unlike

CORRECTED = [name for name in CHOICES if "correction" in compose.declared("algo", name)]


def velocities(x: torch.Tensor, momentum: float) -> torch.Tensor:
    """[steps, P, M]: u = momentum u + g of each rank."""
    rows, u = [], torch.zeros_like(x[0])
    for g in x:
        u = momentum * u + g
        rows.append(u)
    return torch.stack(rows)


def test_every_algorithm_that_can_be_corrected_says_so():
    assert {"gtopk", "gtopk_butterfly", "gtopk_exact", "topk", "randomk", "onebit"} <= set(CORRECTED)


@pytest.mark.parametrize("name", [name for name in CORRECTED if name != "onebit"])
def test_at_density_one_it_is_momentum_after_aggregation(name):
    x = gradients(3, 4, "ties")
    for updates, _ in train(name, 3, x, 1.0, correction=0.5):
        assert torch.allclose(updates, velocities(x, 0.5).mean(1), atol=1e-6)


@pytest.mark.parametrize("size", [2, 4, 7])
@pytest.mark.parametrize("name", [name for name in CORRECTED if name not in ("gtopk", "gtopk_corrected")])
def test_without_a_mask_every_velocity_arrives_or_stays(name, size):
    """The paper's residual rule alone loses some of it: what merges drop."""
    x = gradients(size, 4, "ties")
    ranks = train(name, size, x, 0.01, correction=0.5)
    kept = torch.stack([residual for _, residual in ranks]).double().sum(0)
    applied = ranks[0][0].double().sum(0) * size
    assert torch.allclose(applied + kept, velocities(x, 0.5).double().sum((0, 1)), atol=1e-3)


def steps_of_gtopk(x: torch.Tensor, **options) -> list:
    """Returns of each rank, after the last step: the update, what was selected, velocity and residual."""
    choice = compose.algorithm("gtopk_corrected", {"correction": 0.5, "gain": 1.0, **options})

    def body(collective):
        algorithm = algorithms.load(choice, M)
        algorithm.density = 0.01
        for g in x[:, collective.rank]:
            update = algorithm.step(g.clone(), collective).clone()
        return update, algorithm.chosen.long(), algorithm.velocity, algorithm.memory.residual

    return on_ranks(x.shape[1], body)


def test_masks_set_to_zero_what_was_selected_or_what_was_delivered():
    x = gradients(4, 1, "normal")
    for rank, (update, chosen, velocity, _) in enumerate(steps_of_gtopk(x, mask="selected")):
        assert len(chosen) == 10 and not velocity[chosen].any() and (update[chosen] == 0).any()
        assert velocity.count_nonzero() == M - 10
        delivered = chosen[update[chosen] != 0]
        _, _, other, _ = steps_of_gtopk(x, mask="delivered")[rank]
        assert not other[delivered].any() and other.count_nonzero() == M - len(delivered)


@pytest.mark.parametrize("correction", [0.0, 0.9])
def test_a_boost_multiplies_what_has_not_been_delivered_for_some_steps(correction):
    """As the authors' later code does; a rank alone delivers all that it selects."""
    x, m = torch.rand(8, 1, 20, generator=torch.Generator().manual_seed(0)), 20
    choice = compose.algorithm("topk", {"boost": 3.0, "correction": correction})

    def body(collective):
        boosted = algorithms.load(choice, m)
        boosted.density = 0.1
        velocity, residual, waited = torch.zeros(m), torch.zeros(m), torch.ones(m)
        for step, g in enumerate(x[:, 0]):
            velocity = correction * velocity + g
            held = residual + waited * velocity
            chosen = held.topk(2).indices
            expected = torch.zeros(m)
            expected[chosen] = held[chosen]
            residual = held - expected
            waited = (waited + 1).clamp(max=3)
            waited[chosen] = 1
            if step == 4:  # as a resumed run
                state, boosted = boosted.state_dict(), algorithms.load(choice, m)
                boosted.density = 0.1
                boosted.load_state_dict(state)
            assert torch.allclose(boosted.step(g.clone(), collective), expected)
        assert {1.0, 2.0, 3.0} == set(waited.tolist())

    on_ranks(1, body)


@pytest.mark.parametrize("correction", [0.0, 0.9])
def test_what_bfloat16_takes_of_a_boosted_gradient_is_kept(correction):
    choice = compose.algorithm("topk", {"boost": 6.0, "correction": correction})

    def body(collective):
        boosted = algorithms.load(choice, M)
        boosted.density = 0.01
        fed, applied, velocity = torch.zeros(3, M, dtype=torch.float64)
        for g in gradients(1, 12, "normal")[:, 0].bfloat16():
            waited = boosted.state_dict()["waited"].double()
            velocity = correction * velocity + g.double()
            fed += waited * velocity
            applied += boosted.step(g.clone(), collective).double()
        return fed, applied + boosted.memory.residual.double()

    ((fed, there),) = on_ranks(1, body)
    assert float((fed - there).abs().sum() / fed.abs().sum()) < 1e-5, "rounding lost 1e-3 of it"


@pytest.mark.parametrize("size", [1, 4])
def test_a_clip_bounds_the_gradient_of_each_rank(size):
    x = gradients(size, 1, "normal")
    x[0, 0] *= 100
    for rank, (_, _, velocity, _) in enumerate(steps_of_gtopk(x, clip=40.0)):
        most = 40.0 / size**0.5
        assert velocity.norm() == pytest.approx(min(most, float(x[0, rank].norm())), rel=1e-5)


@pytest.mark.parametrize("size", [1, 4])
def test_a_gain_is_of_the_update_and_of_nothing_else(size):
    x = gradients(size, 4, "normal")
    plain, gained = train("gtopk", size, x, 0.01), train("gtopk_corrected", size, x, 0.01, gain=8.0)
    for (updates, residual), (times_8, same) in zip(plain, gained, strict=True):
        assert torch.equal(8 * updates, times_8) and torch.equal(residual, same)
        assert updates.count_nonzero() > 0


def test_a_gain_and_momentum_are_not_both_meant():
    with pytest.raises(ConfigError, match="type algo.gain=1, or algo.correction=0"):
        compose.algorithm("gtopk_corrected", {"correction": 0.9})


def test_without_momentum_there_is_no_velocity_and_one_of_an_older_state_is_passed_over():
    algorithm = algorithms.load(compose.algorithm("gtopk", {"clip": 1.0}), M)
    assert algorithm.velocity.numel() == 0
    old = {**algorithm.state_dict(), "velocity": torch.ones(M)}
    assert not unlike(old, algorithm.state_dict())
    algorithm.load_state_dict(old)
    assert algorithm.velocity.numel() == 0


def test_what_is_selected_and_not_delivered_still_waits() -> None:
    """Rank 1 selects its entry 0 too, but that of rank 0 fills the update."""
    choice = compose.algorithm("gtopk", {"boost": 3.0, "correction": 0.0, "gain": 1.0})

    def body(collective):
        boosted = algorithms.load(choice, 4)
        boosted.density = 0.25
        gradient = torch.zeros(4)
        gradient[collective.rank] = [5.0, 1.0][collective.rank]
        boosted.step(gradient, collective)
        return boosted.waited.tolist()

    assert on_ranks(2, body) == [[1.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.0]]
