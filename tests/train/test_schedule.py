"""Learning rate and density over a run."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro import schedule
from repro.config import Config, compose

(PAPER,) = compose(["nodes=32"])


def test_the_papers_learning_rate() -> None:
    found = [schedule.learning_rate(epoch, PAPER) for epoch in (0, 5, 10, 80.99, 81, 122, 140.9)]
    assert found == pytest.approx([0.1 / 32, (0.1 / 32 + 0.1) / 2, 0.1, 0.1, 0.01, 0.001, 0.001])


def test_the_papers_density() -> None:
    assert [schedule.density(epoch, PAPER) for epoch in (0, 0.99, 1, 140)] == [0.004, 0.004, 0.001, 0.001]


def test_a_scaled_schedule_is_the_same_curve() -> None:
    short = dataclasses.replace(PAPER, epochs=5, scale_schedule=True)
    for part in (0.0, 0.03, 0.5, 0.58, 0.9, 0.99):
        long_lr = schedule.learning_rate(141 * part, PAPER)
        assert schedule.learning_rate(5 * part, short) == pytest.approx(long_lr)
        assert schedule.density(5 * part, short) == schedule.density(141 * part, PAPER)


def test_an_unscaled_short_run_is_the_beginning_of_the_long_one() -> None:
    short = dataclasses.replace(PAPER, epochs=5)
    assert schedule.learning_rate(4.5, short) == schedule.learning_rate(4.5, PAPER)


@given(st.floats(0, 141), st.integers(1, 64))
def test_within_bounds_and_never_rising_after_the_warm_up(epoch: float, nodes: int) -> None:
    config: Config = dataclasses.replace(PAPER, nodes=nodes)
    lr = schedule.learning_rate(epoch, config)
    assert 0 < lr <= config.lr * (1 + 1e-12)
    if epoch >= config.lr_warmup_epochs:
        assert lr >= schedule.learning_rate(epoch + 1, config)


@given(st.floats(1e-9, 1), st.integers(1, 10**9))
def test_k_is_at_least_one_and_at_most_all(density: float, parameters: int) -> None:
    assert 1 <= schedule.entries(density, parameters) <= parameters
    assert schedule.entries(0.001, 269_722) == 269
