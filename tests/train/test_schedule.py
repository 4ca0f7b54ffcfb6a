"""Learning rate and density over a run."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.config.compose import compose
from repro.config.schema import Config
from repro.density import entries
from repro.train import schedule

(PAPER,) = compose(["nodes=32"])


def test_the_papers_learning_rate() -> None:
    found = [schedule.learning_rate(epoch, PAPER) for epoch in (0, 5, 10, 80.99, 81, 122, 140.9)]
    assert found == pytest.approx([0.1 / 32, (0.1 / 32 + 0.1) / 2, 0.1, 0.1, 0.01, 0.001, 0.001])


def test_the_learning_rate_of_the_reference_curves_rises_from_zero() -> None:
    """It is in their logs: 0.020163 after the first epoch of 98 steps, from 0.1 / 490, and 0.1 after five."""
    config = dataclasses.replace(PAPER, lr_warmup_epochs=5, lr_warmup_from="zero")
    found = [schedule.learning_rate(epoch, config) for epoch in (0, 1, 2, 5)]
    assert found == pytest.approx([0, 0.020163, 0.040122, 0.1], abs=0.1 / 490)


def test_the_papers_density() -> None:
    assert [schedule.density(epoch, PAPER) for epoch in (0, 0.99, 1, 140)] == [0.004, 0.004, 0.001, 0.001]


def test_a_scaled_schedule_is_the_same_curve() -> None:
    short = dataclasses.replace(PAPER, epochs=5, scale_schedule=True)
    for part in (0.0, 0.03, 0.5, 0.58, 0.9, 0.99):
        long_lr = schedule.learning_rate(141 * part, PAPER)
        assert schedule.learning_rate(5 * part, short) == pytest.approx(long_lr)
        assert schedule.density(5 * part, short) == schedule.density(141 * part, PAPER)


def test_fewer_epochs_are_the_first_of_the_schedule() -> None:
    (short,) = compose(["experiment=convergence", "model=resnet20", "algo=gtopk", "seed=0", "epochs=15"])
    whole = dataclasses.replace(short, epochs=141)
    assert short.epochs < whole.lr_drops[0] and not short.scale_schedule
    for step in range(15 * 390):
        epoch = step / 390
        assert schedule.learning_rate(epoch, short) == schedule.learning_rate(epoch, whole)
        assert schedule.density(epoch, short) == schedule.density(epoch, whole)
    assert schedule.learning_rate(14.9, short) == 0.1, "its warm-up lasts 10 epochs, and no drop comes"
    assert [schedule.density(epoch, short) for epoch in (0.99, 1)] == [0.004, 0.001]


@given(st.floats(0, 141))
def test_a_whole_schedule_is_the_same_to_the_bit_scaled_or_not(epoch: float) -> None:
    scaled = dataclasses.replace(PAPER, scale_schedule=True)
    assert schedule.learning_rate(epoch, scaled) == schedule.learning_rate(epoch, PAPER)
    assert schedule.density(epoch, scaled) == schedule.density(epoch, PAPER)


@given(st.floats(0, 141), st.integers(1, 64))
def test_within_bounds_and_never_rising_after_the_warm_up(epoch: float, nodes: int) -> None:
    config: Config = dataclasses.replace(PAPER, nodes=nodes)
    lr = schedule.learning_rate(epoch, config)
    assert 0 < lr <= config.lr * (1 + 1e-12)
    if epoch >= config.lr_warmup_epochs:
        assert lr >= schedule.learning_rate(epoch + 1, config)


@given(st.floats(1e-9, 1), st.integers(1, 10**9))
def test_k_is_at_least_one_and_at_most_all(density: float, parameters: int) -> None:
    assert 1 <= entries(density, parameters) <= parameters
    assert entries(0.001, 269_722) == 269


def test_a_scaled_drop_is_at_the_step_where_its_epoch_begins() -> None:
    """In floating point 95 / 15 times the epoch of step 900, with 190 steps an epoch, is just below 30."""
    short = dataclasses.replace(PAPER, schedule_epochs=95, epochs=15, scale_schedule=True, lr_drops=[30])
    assert 900 / 190 * 95 / 15 < 30
    drop = [schedule.learning_rate(step / 190, short) / PAPER.lr for step in (899, 900)]
    assert drop == pytest.approx([1, PAPER.lr_drop_factor])


def test_the_last_epoch_of_the_warm_up_is_of_the_warm_up() -> None:
    (config,) = compose(["experiment=convergence", "model=resnet20", "algo=dense", "seed=0", "nodes=4"])
    config = dataclasses.replace(config, lr_warmup_epochs=10)
    assert schedule.learning_rate(9.9, config) == pytest.approx(0.025 + 0.075 * 0.99)
