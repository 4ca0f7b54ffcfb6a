"""Finds the chains of messages that decide how long all rounds take, on any network and without another replay."""

from collections.abc import Sequence
from typing import NamedTuple

from repro.comm.replay import seconds
from repro.comm.traffic import Round


class Path(NamedTuple):
    """Describes a chain of messages that wait for each other by their number and their bytes."""

    rounds: int
    bytes: int

    def seconds(self, alpha_s: float, beta_s_per_byte: float) -> float:
        return self.rounds * alpha_s + self.bytes * beta_s_per_byte


MOST_BYTES = 2.0**40  # more than any chain has
LARGEST_RATIO = 1.0  # beta / alpha per byte: alpha takes as long as one byte
STEP = 1e-3  # relative difference of the two replays that separate a path's bytes from its rounds


def critical_paths(all_rounds: Sequence[Sequence[Round]]) -> list[Path]:
    """Returns the chains that decide on some network: `seconds` is the longest of them, for any alpha and beta.

    Seconds are convex and piecewise linear in beta / alpha, so a new piece can only show where two known ones meet.
    Raises ValueError as `seconds` does.
    """

    def path(ratio: float) -> Path:
        here, beyond = seconds(all_rounds, 1.0, ratio), seconds(all_rounds, 1.0, ratio * (1 + STEP))
        size = round((beyond - here) / (ratio * STEP))
        return Path(round(here - size * ratio), size)

    def between(left: Path, right: Path) -> list[Path]:
        if left.rounds <= right.rounds or left.bytes >= right.bytes:  # one is at least as long on every network
            return []
        ratio = (left.rounds - right.rounds) / (right.bytes - left.bytes)
        middle = path(ratio)
        if middle.seconds(1.0, ratio) <= left.seconds(1.0, ratio) * (1 + 1e-6):
            return []
        return [*between(left, middle), middle, *between(middle, right)]

    # With alpha of more seconds than a chain has bytes, the most rounds decide, and of those the most bytes: exactly.
    rounds, size = divmod(seconds(all_rounds, MOST_BYTES, 1.0), MOST_BYTES)
    first, last = Path(int(rounds), int(size)), path(LARGEST_RATIO)
    return list(dict.fromkeys([first, *between(first, last), last]))
