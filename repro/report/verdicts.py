"""The verdict on each claim, by rules that are stated here and printed in the report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Word = Literal["reproduced", "shape only", "not reproduced", "not run"]
ORDER: tuple[Word, ...] = ("reproduced", "shape only", "not reproduced", "not run")


EPSILON = 1e-9  # so that rounding does not decide at a limit


@dataclass(frozen=True)
class Verdict:
    word: Word
    why: str


def not_run() -> Verdict:
    return Verdict("not run", "no run of ours yet")


def within(ours: Sequence[float], low: float, high: float, direction: float = 1.0) -> Verdict:
    """reproduced: every value lies in the published range [low, high]. shape only: every value is at least on
    the same side of `direction` as the range (1 for a speed-up: a gain stays a gain). not reproduced: one is on
    the other side."""
    if not ours:
        return not_run()
    if all(low <= value <= high for value in ours):
        return Verdict("reproduced", f"all in {low:g}–{high:g}")
    side = 1 if low >= direction else -1
    if all((value - direction) * side > 0 for value in ours):
        return Verdict(
            "shape only",
            f"all {'above' if side > 0 else 'below'} {direction:g}, but not all in {low:g}–{high:g}",
        )
    return Verdict("not reproduced", f"not all {'above' if side > 0 else 'below'} {direction:g}")


def near(ours: float | None, published: float, tolerance: float = 0.1, shape: float = 2.0) -> Verdict:
    """reproduced: within `tolerance` (relative) of the published value. shape only: within a factor of `shape`."""
    if ours is None:
        return not_run()
    if abs(ours - published) <= tolerance * abs(published):
        return Verdict("reproduced", f"within {tolerance:.0%}")
    if published and 1 / shape <= ours / published <= shape:
        return Verdict("shape only", f"within a factor of {shape:g}")
    return Verdict("not reproduced", f"off by more than a factor of {shape:g}")


def no_worse(ours: float | None, reference: float | None, margin: float, shape: float) -> Verdict:
    """Accuracies in percent. reproduced: at most `margin` points below the reference; shape only: at most
    `shape` below it."""
    if ours is None or reference is None:
        return not_run()
    below = reference - ours
    text = f"{below:.2f} points below" if below >= 0 else f"{-below:.2f} points above"
    if below <= margin + EPSILON:
        return Verdict("reproduced", f"{text}; {margin:.2g} allowed")
    if below <= shape + EPSILON:
        return Verdict("shape only", f"{text}; {margin:.2g} allowed for reproduced, {shape:.2g} for the shape")
    return Verdict("not reproduced", f"{text}, more than {shape:.2g}")


def first_win(wins: dict[int, bool], published: int) -> Verdict:
    """`wins[P]`: our gTop-k was faster at P. reproduced: it wins from the published P on and not before.
    shape only: it loses at the smallest P and wins at the largest. Fewer than two P around the crossover is
    not a run."""
    if not any(p < published for p in wins) or not any(p >= published for p in wins):
        return not_run()
    if all(won == (p >= published) for p, won in wins.items()):
        return Verdict("reproduced", f"wins from P = {published} on, not before")
    if not wins[min(wins)] and wins[max(wins)]:
        return Verdict("shape only", "loses at the smallest P, wins at the largest; crosses elsewhere")
    return Verdict("not reproduced", "no crossover of this kind")


def at_most(verdict: Verdict, best: Word, reason: str) -> Verdict:
    """Caps a verdict: a run under unlike conditions (shorter schedule, modelled seconds) cannot earn more
    than `best`."""
    if verdict.word == "not run" or ORDER.index(verdict.word) >= ORDER.index(best):
        return verdict
    return replace(verdict, word=best, why=f"{verdict.why}; {reason}")


RULES = (
    "A range (speed-ups): reproduced if every value of ours lies in the published range; shape only if "
    "every one is a gain.",
    "A value (network fit, iteration times): reproduced within 10 %; shape only within a factor of 2.",
    "An accuracy: reproduced if at most 1 point below the reference run of the same settings (or one "
    "standard deviation over"
    " the seeds, where that is more); shape only if at most 5 points below.",
    "A crossover: reproduced if gTop-k wins from the published number of nodes on and not before; shape "
    "only if it loses at the"
    " smallest and wins at the largest.",
    "Caps: modelled or simulated seconds, a schedule shorter than the published one, or a single seed "
    "earn at most "
    "shape only.",
    "No run of ours: not run. The published number is shown, nothing is filled in.",
)
