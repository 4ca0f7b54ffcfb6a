"""Each rule on made-up numbers: every word is reached, and by an interval, not by a point."""

import math
from dataclasses import replace

import committed_results
import pytest

from repro.report import intervals, verdicts
from repro.report.intervals import Interval

NOISE = 0.34  # points, of the difference of two single runs


@pytest.mark.parametrize(
    ("differences", "word", "why"),
    [
        ([0.1, -0.2, 0.0], "reproduced", "equal: "),
        ([0.1, -0.2, 0.0, 0.1, -0.1], "reproduced", "equal: "),
        ([2.0, 2.1, 1.9], "reproduced", "+1.83 to +2.17 points"),
        ([-0.5, -0.5], "reproduced", "equal: "),
        ([-2.0, -2.1, -1.9], "not reproduced", "-2.17 to -1.83 points"),
        ([-3.0, -2.0, -2.5, -2.6], "not reproduced", "of 4 seeds, paired"),
        ([0.0, -1.0], "undecided", "-3.66 to +2.66 points (90 % interval of 2 seeds, paired); 8 seeds might decide"),
        ([-0.9, -1.1, -1.0], "undecided", "over 100 seeds would be needed"),
        ([0.0], "undecided", "one pair"),
        ([-2.0], "undecided", "one pair"),
        ([0.8], "reproduced", "one pair"),
        ([-3.0], "not reproduced", "one pair"),
    ],
)
def test_an_accuracy(differences: list[float], word: str, why: str) -> None:
    verdict = verdicts.no_worse(intervals.of_pairs(differences, NOISE), "")
    assert verdict.word == word
    assert why in verdict.why, verdict.why


def test_the_margin_is_met_or_missed_by_the_ends_of_the_interval() -> None:
    def word(low: float, high: float) -> str:
        return verdicts.no_worse(Interval((low + high) / 2, low, high, 3, 0.1, "made up")).word

    assert word(-1.0, 0.5) == "undecided" and word(-0.999, 0.5) == "reproduced"
    assert word(-3.0, -1.0) == "undecided" and word(-3.0, -1.001) == "not reproduced"


def test_under_other_conditions_no_number_decides() -> None:
    for difference in (-20.0, 0.0, 20.0):
        found = intervals.of_pairs([difference] * 3)
        verdict = verdicts.no_worse(found, "first 15 of 141 epochs")
        assert verdict.word == "conditions not met" and "first 15 of 141 epochs" in verdict.why
    assert verdicts.no_worse(None, "first 15 of 141 epochs").word == "not run"


def test_one_pair_of_unknown_noise_is_undecided_however_far_apart() -> None:
    assert {verdicts.no_worse(intervals.of_pairs([d])).word for d in (-90.0, 0.0, 90.0)} == {"undecided"}


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ([(3.0, 2.9, 3.1), (11.9, 11.8, 12.0)], "reproduced"),
        ([(3.0, 2.9, 3.1), (1.5, 1.4, 1.6)], "not reproduced"),
        ([(20.0, 19.0, 21.0)], "not reproduced"),
        ([(3.0, 2.6, 3.4)], "undecided"),
        ([(3.0, -math.inf, math.inf)], "undecided"),
        ([], "not run"),
    ],
)
def test_a_range_of_factors(ours: list[tuple[float, float, float]], word: str) -> None:
    factors = {str(at): Interval(*values, 5, 0.1, "made up") for at, values in enumerate(ours)}
    networks = dict.fromkeys(factors)
    assert verdicts.within(factors, 2.7, 12.0, networks).word == word
    met = verdicts.within(factors, 2.7, 12.0, networks, "the node is another")
    assert met.word == ("conditions not met" if ours else "not run")
    fewer = verdicts.within(factors, 2.7, 12.0, networks | {"one more": None})
    alone = ("undecided", "2 of 2 in 2.7–12; without one more")
    assert (fewer.word, fewer.why) == alone if word == "reproduced" else fewer.word == word


@pytest.mark.parametrize(("factor", "word"), [(13.5, "reproduced"), (12.2, "reproduced"), (14.3, "not reproduced")])
def test_a_factor_near_its_own_published_one_is_reproduced_wherever_that_lies(factor: float, word: str) -> None:
    """Some of the script's lie outside of the article's range, so that what equals them was not reproduced."""
    found = {"near": Interval(factor, factor - 0.1, factor + 0.1, 5, 0.1, "made up")}
    verdict = verdicts.within(found, 2.7, 12.0, {"near": 12.785})
    assert verdict.word == word
    other = "outside 2.7–12 and more than 10% off their own: near"
    assert verdict.why == ("all in 2.7–12 or within 10% of their own" if word == "reproduced" else other)


def test_the_published_rates_are_reproduced_by_themselves() -> None:
    paper = committed_results.load().paper
    for other, key in (("dense", "over_dense_at_32"), ("topk", "over_topk_at_32")):
        rates = {name: one for name, one in paper["throughput_per_node"].items() if name not in ("lstm", "evidence")}
        own = {name: one["gtopk"][32] / one[other][32] for name, one in rates.items()}
        ours = {name: Interval(x, x * 0.999, x * 1.001, 5, 0.1, "made up") for name, x in own.items()}
        low, high = paper["claims"][key]["range"]
        assert verdicts.within(ours, low, high, own).word == "reproduced" and len(own) == 4
        assert verdicts.within(ours, low, high, dict.fromkeys(own)).word == "not reproduced"


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ((0.44, 0.40, 0.47), "reproduced"),
        ((0.44, 0.30, 0.58), "undecided"),
        ((0.30, 0.29, 0.31), "not reproduced"),
        ((0.60, 0.55, 0.65), "not reproduced"),
        (None, "not run"),
    ],
)
def test_a_value(ours: tuple[float, float, float] | None, word: str) -> None:
    found = Interval(*ours, 7, None, "made up") if ours else None
    assert verdicts.near(found, 0.436).word == word
    assert verdicts.near(found, 0.436, "another link").word == ("conditions not met" if ours else "not run")


LOSES, OPEN, WINS = (Interval(x, x - 0.1, x + 0.1, 10, 0.2, "made up") for x in (0.5, 1.05, 2.0))


@pytest.mark.parametrize(
    ("over", "word"),
    [
        ({2: LOSES, 4: LOSES, 8: WINS, 16: WINS}, "reproduced"),
        ({2: LOSES, 4: OPEN, 8: WINS}, "undecided"),
        ({2: LOSES, 4: WINS, 8: WINS}, "not reproduced"),
        ({4: OPEN, 8: LOSES}, "not reproduced"),
        ({8: WINS, 16: WINS}, "not run"),
        ({}, "not run"),
    ],
)
def test_first_win(over: dict[int, Interval], word: str) -> None:
    assert verdicts.first_win(over, 8).word == word


@pytest.mark.parametrize(
    ("factor", "why"),
    [
        (OPEN, "P = 4 (49 repeats might decide)"),
        (replace(OPEN, mean=1.001, std=0.2), "P = 4 (over 100 repeats would be needed)"),
        (intervals.point(1.05, "not repeated"), "P = 4 (repeats that might decide: unknown from one)"),
    ],
)
def test_an_open_crossover_says_how_many_repeats_would_decide(factor: Interval, why: str) -> None:
    assert verdicts.first_win({4: factor, 8: WINS}, 8).why == f"the intervals leave it open at {why}"


def test_every_word_has_its_place() -> None:
    assert set(verdicts.ORDER) == set(verdicts.Word.__args__)  # type: ignore[attr-defined]
    assert all(any(word in rule.lower() for rule in verdicts.RULES) for word in verdicts.ORDER)


def test_a_crossover_needs_a_p_on_either_side() -> None:
    assert verdicts.first_win({2: LOSES, 4: LOSES}, 8).word == "not run"
