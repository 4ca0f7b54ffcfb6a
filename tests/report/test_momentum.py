"""Where a run's momentum comes is told from its settings, and so is the rate that it amounts to."""

import dataclasses

import pytest

from repro.config.compose import compose
from repro.report.momentum import AFTER, BEFORE, MASKED, NONE, effective_lr, rule


@pytest.mark.parametrize(
    ("typed", "expected", "rate"),
    [
        ([], AFTER, 1.0),
        (["momentum=0", "lr=1.0"], NONE, 1.0),
        (["algo=gtopk_corrected"], NONE, 1.0),
        (["algo=gtopk_corrected", "algo.correction=0.9", "algo.gain=1"], BEFORE, 1.0),
        (["algo=topk", "momentum=0", "algo.correction=0.5", "algo.mask=selected"], MASKED, 0.2),
        (["algo=dgc"], MASKED, 1.0),
    ],
)
def test_the_rule_and_the_rate(typed: list[str], expected: str, rate: float) -> None:
    (config,) = compose(typed)
    settings = dataclasses.asdict(config)
    assert (rule(settings), effective_lr(settings)) == (expected, pytest.approx(rate))
