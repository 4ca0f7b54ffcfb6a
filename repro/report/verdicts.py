"""Gives the verdict on each claim, by rules that are stated here and printed in the report.

An interval decides, not a point, and only a run under the claim's own conditions can fail to reproduce it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from repro.report.intervals import FAR, LEVEL, MOST, Interval, repeats_to_decide, seeds_to_decide

Word = Literal["reproduced", "undecided", "not reproduced", "conditions not met", "not run"]
ORDER: tuple[Word, ...] = ("reproduced", "undecided", "not reproduced", "conditions not met", "not run")

MARGIN = 1.0  # points of test accuracy, fixed before any whole schedule was run
TOLERANCE = 0.1  # relative to the published value
EPSILON = 1e-9  # so that rounding does not decide at a limit


@dataclass(frozen=True)
class Verdict:
    word: Word
    why: str


def not_run() -> Verdict:
    return Verdict("not run", "no run of ours yet")


def no_worse(difference: Interval | None, unmet: str = "") -> Verdict:
    """Judges ours less the reference, in points; `unmet` names the claim's conditions that the runs lack."""
    if difference is None:
        return not_run()
    if unmet:
        return Verdict("conditions not met", f"{unmet}; {difference.mean:+.2f} points")
    text = difference.text(" points")
    if difference.low > -MARGIN + EPSILON:
        equal = "equal: " if difference.high < MARGIN - EPSILON else ""
        return Verdict("reproduced", equal + text)
    if difference.high < -MARGIN - EPSILON:
        return Verdict("not reproduced", text)
    return Verdict("undecided", f"{text}; {_more_seeds(difference, -MARGIN)}")


def _more_seeds(interval: Interval, limit: float) -> str:
    if interval.std is None:
        return "seeds that might decide: unknown from one"
    needed = seeds_to_decide(interval, limit)
    return f"{needed} seeds might decide" if needed else f"over {MOST} seeds would be needed"


def within(
    ours: Mapping[str, Interval],
    low: float,
    high: float,
    published: Mapping[str, float | None],
    unmet: str = "",
) -> Verdict:
    """Judges the factors of several networks against the range that is told of them, or each one's own published one.

    `published` has all of the claim's networks. Those of some can fail it; only those of all can reproduce it.
    """
    if not ours:
        return not_run()
    spans = {name: [(low - EPSILON, high + EPSILON), *_about(published.get(name))] for name in ours}
    known = any(published.values())
    own = f" or within {TOLERANCE:.0%} of their own" if known else ""
    inside = [name for name, factor in ours.items() if any(a <= factor.mean <= b for a, b in spans[name])]
    text = f"{len(inside)} of {len(ours)} in {low:g}–{high:g}{own}"
    if unmet:
        return Verdict("conditions not met", f"{unmet}; {text}")
    outside = [name for name, factor in ours.items() if all(factor.high < a or factor.low > b for a, b in spans[name])]
    if outside:
        off = f" and more than {TOLERANCE:.0%} off their own" if known else ""
        return Verdict("not reproduced", f"outside {low:g}–{high:g}{off}: {', '.join(outside)}")
    if not all(any(a <= factor.low and factor.high <= b for a, b in spans[name]) for name, factor in ours.items()):
        return Verdict("undecided", f"{text}; an interval has an end on either side, or a time was not repeated")
    if missing := [name for name in published if name not in ours]:
        return Verdict("undecided", f"{text}; without {', '.join(missing)}")
    return Verdict("reproduced", f"all in {low:g}–{high:g}{own}")


def _about(published: float | None) -> list[tuple[float, float]]:
    return [] if published is None else [(published * (1 - TOLERANCE), published * (1 + TOLERANCE))]


def near(ours: Interval | None, published: float, unmet: str = "") -> Verdict:
    """Judges a value with its interval against one published value."""
    if ours is None:
        return not_run()
    if unmet:
        return Verdict("conditions not met", f"{unmet}; {ours.mean / published:.2g} times the published")
    low, high = published * (1 - TOLERANCE), published * (1 + TOLERANCE)
    if low * (1 - EPSILON) <= ours.low and ours.high <= high * (1 + EPSILON):
        return Verdict("reproduced", f"within {TOLERANCE:.0%}: {ours.how}")
    if ours.high < low or ours.low > high:
        return Verdict("not reproduced", f"more than {TOLERANCE:.0%} off: {ours.how}")
    return Verdict("undecided", f"the interval reaches past {TOLERANCE:.0%}: {ours.how}")


def first_win(over: Mapping[int, Interval], published: int) -> Verdict:
    """Judges `over[P]`, by what factor gTop-k was faster at P: it should win from the published P on, not before.

    Without a P on either side of it, the verdict is "not run".
    """
    if not any(p < published for p in over) or not any(p >= published for p in over):
        return not_run()
    against = [p for p, factor in over.items() if (factor.high < 1 if p >= published else factor.low > 1)]
    if against:
        return Verdict("not reproduced", f"the other way round at P = {', '.join(map(str, sorted(against)))}")
    if left := {p: factor for p, factor in over.items() if factor.low <= 1 <= factor.high}:
        at = ", ".join(f"P = {p} ({_more_repeats(factor)})" for p, factor in sorted(left.items()))
        return Verdict("undecided", f"the intervals leave it open at {at}")
    return Verdict("reproduced", f"wins from P = {published} on, not before; {LEVEL} intervals of the factor")


def _more_repeats(factor: Interval) -> str:
    if factor.std is None:
        return "repeats that might decide: unknown from one"
    needed = repeats_to_decide(factor)
    return f"{needed} repeats might decide" if needed else f"over {MOST} repeats would be needed"


RULES = (
    f"An accuracy: the {LEVEL} interval of ours less that of the reference run, Student's t over differences of runs "
    f"with the same seed. Margin: {MARGIN:g} point, fixed beforehand. Reproduced: the interval's lower end is above "
    f"-{MARGIN:g} (equal: both ends lie within {MARGIN:g}). Not reproduced: its upper end is below -{MARGIN:g}. "
    "Undecided: otherwise, with the number of seeds that just decide at exactly this mean and deviation. New seeds "
    "have others, so that it is a guess; how many are trained is to be fixed before.",
    f"One pair of runs is undecided, unless it lies more than {FAR:g} deviations off the margin. That deviation is the "
    "one between single runs of the same setting among the reference curves, which repeat VGG-16 alone. Summaries "
    "that kept no seed's own accuracy are compared by Welch's interval, which knows no pairs.",
    "Conditions not met: another schedule, learning rate, momentum, weight decay, number of nodes or batch, or other "
    "data than the claim's, whatever the numbers are. The first epochs of the schedule, or a compressed one, cannot "
    "fail a claim about all of it; the reference curves' accuracy at the same epoch stands beside.",
    "CIFAR-10 from a folder of JPEGs meets the condition, and so does bfloat16, if both runs use it: whether two "
    "algorithms end alike is a fair question of two runs on the same images. Accuracies on these images are not "
    "compared with published ones.",
    f"A range of factors (speed-ups): reproduced if every network's interval lies in the article's range or within "
    f"{TOLERANCE:.0%} of its own factor in the authors' script, some of which lie outside that range; not reproduced "
    "if one lies outside both, else undecided; a time that was not repeated decides nothing. Networks are those "
    "whose times on a node are published for each part; without one of them a range is not reproduced, only missed. "
    "The interval is that of consecutive iterations of one session: how far sessions differ, and a shaped link from "
    "the paper's network, is not in it. Conditions not met where the node is not the paper's, or seconds come from a "
    "model.",
    f"A value (network fit): reproduced if its interval lies within {TOLERANCE:.0%} of the published, not reproduced "
    "if outside. Conditions not met on a shaped link, which has no switch or network card. What an algorithm gains on "
    "a network of the published alpha and rate, as in speed-ups and the crossover, a shaped link can show.",
    f"A crossover: the {LEVEL} interval of the factor at each number of nodes is above 1 from the published one on, "
    "and below 1 before.",
    "No run of ours: not run. The published number is shown, nothing is filled in.",
)
