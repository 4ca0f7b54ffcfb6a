"""Intervals against scipy's, and mirrored where the two sides are swapped."""

import math
import statistics
from collections import Counter
from types import ModuleType

import committed_results
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from repro.report import intervals

DEGREES = (*range(1, 11), 12, 15, 20, 30, 60, 120)  # of textbook tables of Student's t
POINTS = st.floats(-50, 50).map(lambda value: round(value, 2))


@pytest.fixture(scope="module")
def stats() -> ModuleType:
    from scipy import stats  # scikit-learn brings it; here, as it takes a second

    return stats


def test_the_table_is_that_of_student(stats: ModuleType) -> None:
    for degrees, quantile in intervals.T95.items():
        assert quantile == pytest.approx(stats.t.ppf(0.95, degrees), abs=1e-4)
    for degrees in (0.7, 1.0, 3.5, 11, 59.9, 1000.0):
        assert intervals.t95(degrees) >= stats.t.ppf(0.95, max(1, degrees)) - 1e-4, "rounded to the wider"


@given(st.lists(POINTS, min_size=1, max_size=5))
def test_swapping_the_two_mirrors_the_interval(differences: list[float]) -> None:
    there = intervals.of_pairs(differences, 0.3)
    back = intervals.of_pairs([-value for value in differences], 0.3)
    assert (back.low, back.mean, back.high) == pytest.approx((-there.high, -there.mean, -there.low))
    assert there.low <= there.mean <= there.high and there.n == len(differences)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_pairs_are_students_interval(stats: ModuleType, n: int) -> None:
    differences = [0.3, -0.4, 0.1, 0.7, -0.2][:n]
    found = intervals.of_pairs(differences)
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(n)
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.9, n - 1, mean, error), abs=1e-3)


def test_one_pair_lies_within_five_deviations_of_the_noise() -> None:
    found = intervals.of_pairs([0.5], 0.3)
    assert (found.low, found.high, found.n) == pytest.approx((-1.0, 2.0, 1))
    unknown = intervals.of_pairs([0.5])
    assert (unknown.low, unknown.high) == (-math.inf, math.inf)


@given(POINTS, POINTS, st.floats(0.01, 5), st.floats(0.01, 5), st.integers(2, 5), st.integers(2, 5))
def test_means_without_pairs_are_welchs_interval(
    stats: ModuleType, a: float, b: float, s: float, t: float, n: int, m: int
) -> None:
    found = intervals.of_means((a, s, n), (b, t, m), None)
    back = intervals.of_means((b, t, m), (a, s, n), None)
    assert (back.low, back.high) == pytest.approx((-found.high, -found.low))
    error = math.hypot(s / math.sqrt(n), t / math.sqrt(m))
    degrees = error**4 / (s**4 / n**2 / (n - 1) + t**4 / m**2 / (m - 1))
    tabled = max(known for known in DEGREES if known <= max(1, degrees) + 1e-9)
    half, wider = (stats.t.ppf(0.95, of) * error for of in (degrees, tabled))
    assert 2 * half * (1 - 1e-3) <= found.high - found.low, "degrees of freedom are rounded to the wider"
    assert found.high - found.low == pytest.approx(2 * wider, rel=1e-3), "and no further than to the table's next"
    assert (found.low + found.high) / 2 == pytest.approx(a - b, abs=1e-9) == found.mean


def test_of_one_seed_without_a_pair_the_noise_speaks() -> None:
    found = intervals.of_means((80.0, None, 1), (81.0, 0.2, 3), 0.3)
    assert (found.low, found.high) == pytest.approx((-2.5, 0.5)) and "not paired" in found.how


def test_a_factor_is_mirrored_too() -> None:
    slow, fast = (2.0, 0.1, 10), (1.0, 0.1, 10)
    there, back = intervals.of_factor(slow, fast), intervals.of_factor(fast, slow)
    assert there.mean == 2.0 and 1 < there.low < 2 < there.high
    assert (back.low, back.high) == pytest.approx((1 / there.high, 1 / there.low))


@given(st.lists(st.floats(1, 3), min_size=2, max_size=6), st.lists(st.floats(1, 3), min_size=2, max_size=6))
def test_a_factor_of_repeats_has_welchs_interval_on_logarithms(
    stats: ModuleType, a: list[float], b: list[float]
) -> None:
    assume(max(a) / min(a) > 1.001 and max(b) / min(b) > 1.001)
    found = intervals.of_repeats(a, b)
    one, other = ([math.log(value) for value in values] for values in (a, b))
    theirs = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.9)
    assert found.mean == pytest.approx(statistics.geometric_mean(a) / statistics.geometric_mean(b))
    width, theirs_width = math.log(found.high / found.low), theirs.high - theirs.low
    assert theirs_width * (1 - 1e-3) <= width <= 2.3 * theirs_width, "degrees of freedom are rounded to the wider"
    assert math.log(found.low) + math.log(found.high) == pytest.approx(theirs.low + theirs.high, abs=1e-9)


def test_a_factor_of_medians_has_their_error(stats: ModuleType) -> None:
    """Half the range between normal values' quartiles is 0.6745 deviations; a median's error 1.2533 times a mean's."""
    found = intervals.of_factor((2.0, 0.02, 100), (1.0, 0.01, 100))
    error = math.hypot(*[1.2533 * (0.01 / 0.6745) / 10] * 2)
    half = stats.t.ppf(0.95, 198) * error
    assert found.mean == 2.0
    assert (found.low, found.high) == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)), rel=2e-3)


def test_a_time_that_was_not_repeated_has_a_factor_without_limits() -> None:
    for found in (
        intervals.of_repeats([2.0], [1.0]),
        intervals.of_repeats([2.0, 2.0, 2.0], [1.0]),
        intervals.of_factor((2.0, 0.1, 1), (1.0, 0.1, 10)),
    ):
        assert (found.mean, found.low, found.high, found.n) == (pytest.approx(2), -math.inf, math.inf, 1)
        assert found.how == "one time, not repeated" and intervals.repeats_to_decide(found) is None


def test_as_many_seeds_as_it_says_decide() -> None:
    found = intervals.of_pairs([0.0, -1.0])
    needed = intervals.seeds_to_decide(found, -1.0)
    assert needed is not None and found.std is not None

    def decided(n: int) -> bool:
        return abs(found.mean + 1.0) > intervals.t95(n - 1) * found.std / math.sqrt(n)

    assert decided(needed) and not decided(needed - 1)
    assert intervals.seeds_to_decide(intervals.of_pairs([-0.9, -1.1]), -1.0) is None


def test_noise_is_that_between_repeats_of_one_setting() -> None:
    def run(accuracy: float, nodes: int = 4) -> dict:
        same = {"model": "resnet20", "algo": "dense", "density": 1, "batch_per_node": 32, "lr": 0.1}
        return same | {"nodes": nodes, "test_accuracy": [10.0, accuracy]}

    assert intervals.noise_of_repeats([run(90.0), run(90.3), run(50.0, 8)]) == pytest.approx(0.3)
    assert intervals.noise_of_repeats([run(90.0), run(50.0, 8)]) is None
    reference = committed_results.load().reference
    committed = intervals.noise_of_repeats(reference)
    settings = Counter(
        (one["model"], *(str(one[name]) for name in ("algo", "density", "nodes", "batch_per_node", "lr")))
        for one in reference
    )
    assert {setting[0] for setting, count in settings.items() if count > 1} == {"vgg16"}, "as the verdicts say"
    assert committed == pytest.approx(math.sqrt((0.1**2 + 0.14**2 + 0.15**2 + 0.65**2) / 4), abs=1e-3)


def test_welchs_interval_has_the_fewer_repeats_and_the_deviation_of_a_difference() -> None:
    found = intervals.of_means((80.0, 0.3, 2), (81.0, 0.4, 5), None)
    assert (found.n, found.std) == (2, pytest.approx(0.5))


def test_noise_of_curves_that_end_apart_is_that_at_their_last_common_epoch() -> None:
    same = {"model": "resnet20", "algo": "dense", "density": 1, "nodes": 4, "batch_per_node": 32, "lr": 0.1}
    runs = [same | {"test_accuracy": curve} for curve in ([10.0, 90.0, 95.0], [10.0, 90.3])]
    assert intervals.noise_of_repeats(runs) == pytest.approx(0.3)
