"""Computes 90 % intervals of a difference or of a factor from few repeats, by Student's t."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

LEVEL = "90 %"
# The 0.95 quantile of Student's t by degrees of freedom; between two, the lower counts, which widens the interval.
T95 = {
    1: 6.3138, 2: 2.9200, 3: 2.3534, 4: 2.1318, 5: 2.0150, 6: 1.9432, 7: 1.8946, 8: 1.8595, 9: 1.8331, 10: 1.8125,
    12: 1.7823, 15: 1.7531, 20: 1.7247, 30: 1.6973, 60: 1.6706, 120: 1.6577,
}  # fmt: skip
FAR = 5.0  # standard deviations from a limit at which one pair of runs decides by itself
MOST = 100  # a larger number of repeats is not named


@dataclass(frozen=True)
class Interval:
    """Says where a mean lies with 90 % confidence; `std` is the deviation of one of the n repeats, None if unknown."""

    mean: float
    low: float
    high: float
    n: int
    std: float | None
    how: str

    def text(self, unit: str = "", sign: str = "+") -> str:
        ends = f"{self.low:{sign}.2f} to {self.high:{sign}.2f}{unit}"
        return f"{ends} ({self.how})" if math.isfinite(self.low) else self.how


def t95(degrees: float) -> float:
    """Returns the 0.95 quantile of Student's t. Fewer degrees than 1, as rounding may give, count as 1."""
    return T95[max((known for known in T95 if known <= degrees + 1e-9), default=1)]


def point(value: float, how: str) -> Interval:
    """Returns the unlimited interval of one value that was not repeated."""
    return Interval(value, -math.inf, math.inf, 1, None, how)


def of_pairs(differences: Sequence[float], noise: float | None = None) -> Interval:
    """Returns the interval of paired differences. One pair gets FAR times `noise`, the deviation of a difference."""
    mean, n = statistics.fmean(differences), len(differences)
    if n == 1:
        return _alone(mean, noise)
    std = statistics.stdev(differences)
    half = t95(n - 1) * std / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n, std, f"{LEVEL} interval of {n} seeds, paired")


def of_runs(
    mine: Mapping[int, float],
    theirs: Mapping[int, float],
    means: tuple[tuple[float, float | None, int], tuple[float, float | None, int]],
    noise: float | None,
) -> Interval:
    """Returns by how much the first runs, by seed, are above the second: paired, or by `means` if they share none."""
    if shared := sorted(mine.keys() & theirs):
        return of_pairs([mine[seed] - theirs[seed] for seed in shared], noise)
    return of_means(*means, noise)


def of_means(a: tuple[float, float | None, int], b: tuple[float, float | None, int], noise: float | None) -> Interval:
    """Returns the difference of two unpaired means, each with its sample deviation and n (Welch, 1947)."""
    (mean_a, std_a, n_a), (mean_b, std_b, n_b) = a, b
    if std_a is None or std_b is None:
        alone = _alone(mean_a - mean_b, noise)
        return replace(alone, how=f"{n_a} and {n_b} seeds, not paired, " + (_NOISE if noise else "of unknown noise"))
    part_a, part_b = std_a**2 / n_a, std_b**2 / n_b
    squares = part_a + part_b
    degrees = squares**2 / (part_a**2 / (n_a - 1) + part_b**2 / (n_b - 1)) if squares else n_a + n_b - 2
    half, mean = t95(degrees) * math.sqrt(squares), mean_a - mean_b
    how = f"{LEVEL} interval of {n_a} and {n_b} seeds, not paired"
    return Interval(mean, mean - half, mean + half, min(n_a, n_b), math.hypot(std_a, std_b), how)


_ONCE = "one time, not repeated"
_NOISE = f"{FAR:g} deviations of the reference curves' repeats (VGG-16) either way"
_ALONE = f"one pair, {_NOISE}"


def _alone(difference: float, noise: float | None) -> Interval:
    if noise is None:
        return point(difference, "one pair, of unknown noise")
    return Interval(difference, difference - FAR * noise, difference + FAR * noise, 1, noise, _ALONE)


def of_factor(a: tuple[float, float, int], b: tuple[float, float, int]) -> Interval:
    """Returns the factor a / b of two (median, half interquartile range, repeats), by Welch's method on logarithms."""
    # of normal values half that range is 0.6745 deviations, and the error of a median 1.2533 times that of a mean
    if min(a[2], b[2]) == 1:
        return point(a[0] / b[0], _ONCE)
    error = 1.2533 / 0.6745
    one, other = ((math.log(median), error * spread / median, repeats) for median, spread, repeats in (a, b))
    return _of_logarithms(one, other)


def of_repeats(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Returns the factor of the means of two repeated measurements, by Welch's method on their logarithms."""
    one, other = ([math.log(value) for value in values] for values in (a, b))
    if min(len(one), len(other)) == 1:
        return point(math.exp(statistics.fmean(one) - statistics.fmean(other)), _ONCE)
    first, second = ((statistics.fmean(logs), statistics.stdev(logs), len(logs)) for logs in (one, other))
    return _of_logarithms(first, second)


def _of_logarithms(one: tuple[float, float, int], other: tuple[float, float, int]) -> Interval:
    found = of_means(one, other, None)
    low, mean, high = map(math.exp, (found.low, found.mean, found.high))
    return Interval(mean, low, high, found.n, found.std, f"{LEVEL} interval of {one[2]} and {other[2]} repeats")


def seeds_to_decide(interval: Interval, limit: float) -> int | None:
    """Returns how many pairs of this mean and deviation put it on one side of the limit; None if over MOST."""
    if interval.std is None:
        return None
    for n in range(max(2, interval.n + 1), MOST + 1):
        half = t95(n - 1) * interval.std / math.sqrt(n)
        if abs(interval.mean - limit) > half:
            return n
    return None


def repeats_to_decide(factor: Interval) -> int | None:
    """Returns how many repeats would put a factor's interval on one side of 1; its `std` is its logarithm's."""
    return seeds_to_decide(replace(factor, mean=math.log(factor.mean)), 0.0)


def noise_of_repeats(reference: Iterable[Mapping[str, Any]]) -> float | None:
    """Returns the deviation of the difference of two single runs of one setting, in points, by the reference's repeats.

    Each two runs of one setting give one difference, at the last epoch that both have.
    """
    settings: dict[tuple[Any, ...], list[Sequence[float]]] = {}
    for run in reference:
        same = tuple(run[name] for name in ("model", "algo", "density", "nodes", "batch_per_node", "lr"))
        settings.setdefault(same, []).append(run["test_accuracy"])
    squares = []
    for curves in settings.values():
        for a, b in combinations(curves, 2):
            last = min(len(a), len(b)) - 1
            squares.append((a[last] - b[last]) ** 2)
    return math.sqrt(statistics.fmean(squares)) if squares else None
