"""Each rule on made-up numbers."""

import pytest

from repro import verdicts
from repro.verdicts import Verdict


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ([3.0, 11.9], "reproduced"),
        ([2.7, 12.0], "reproduced"),
        ([1.5, 6.0], "shape only"),
        ([20.0], "shape only"),
        ([0.9, 6.0], "not reproduced"),
        ([], "not run"),
    ],
)
def test_within(ours: list[float], word: str) -> None:
    assert verdicts.within(ours, 2.7, 12.0).word == word


@pytest.mark.parametrize(
    ("ours", "word"), [(0.46, "reproduced"), (0.3, "shape only"), (0.1, "not reproduced"), (None, "not run")]
)
def test_near(ours: float | None, word: str) -> None:
    assert verdicts.near(ours, 0.436).word == word


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        (92.0, "reproduced"),
        (90.0, "reproduced"),
        (88.0, "shape only"),
        (86.0, "shape only"),
        (80.0, "not reproduced"),
        (None, "not run"),
    ],
)
def test_no_worse(ours: float | None, word: str) -> None:
    assert verdicts.no_worse(ours, 91.0, 1.0, 5.0).word == word


@pytest.mark.parametrize(
    ("wins", "word"),
    [
        ({2: False, 4: False, 8: True, 16: True}, "reproduced"),
        ({2: False, 4: True, 8: True}, "shape only"),
        ({4: True, 8: True}, "not reproduced"),
        ({2: False, 4: False, 8: False}, "not reproduced"),
        ({8: True, 16: True}, "not run"),
        ({}, "not run"),
    ],
)
def test_first_win(wins: dict[int, bool], word: str) -> None:
    assert verdicts.first_win(wins, 8).word == word


def test_a_cap_lowers_and_never_raises() -> None:
    for word in verdicts.ORDER:
        capped = verdicts.at_most(Verdict(word, "why"), "shape only", "modelled").word
        assert capped == ("shape only" if word == "reproduced" else word)
