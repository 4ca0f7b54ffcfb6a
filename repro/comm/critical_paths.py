"""The chains of messages that decide how long a schedule takes: its seconds on any network without another replay."""

from collections.abc import Sequence
from typing import NamedTuple

from repro.network import Round, seconds


class Path(NamedTuple):
    """A chain of messages that wait for each other: how many they are, and their bytes."""

    rounds: int
    bytes: int

    def seconds(self, alpha_s: float, beta_s_per_byte: float) -> float:
        return self.rounds * alpha_s + self.bytes * beta_s_per_byte


RATIOS = 1e-9, 1.0  # beta / alpha per byte: alpha from nothing beside a byte to a second beside a nanosecond a byte
STEP = 1e-3  # relative, between the two replays that tell a path's bytes from its rounds


def critical_paths(schedule: Sequence[Sequence[Round]]) -> list[Path]:
    """The chains that decide on some network: `seconds` is the longest of them, for any alpha and beta.

    Seconds are convex and piecewise linear in beta / alpha, so a new piece can only show where two known ones meet.
    Raises ValueError as `seconds` does.
    """

    def path(ratio: float) -> Path:
        here, beyond = seconds(schedule, 1.0, ratio), seconds(schedule, 1.0, ratio * (1 + STEP))
        size = round((beyond - here) / (ratio * STEP))
        return Path(round(here - size * ratio), size)

    def between(left: Path, right: Path) -> list[Path]:
        if left.rounds <= right.rounds or left.bytes >= right.bytes:  # one is never the shorter
            return []
        ratio = (left.rounds - right.rounds) / (right.bytes - left.bytes)
        middle = path(ratio)
        if middle.seconds(1.0, ratio) <= left.seconds(1.0, ratio) * (1 + 1e-6):
            return []
        return [*between(left, middle), middle, *between(middle, right)]

    first, last = (path(ratio) for ratio in RATIOS)
    return list(dict.fromkeys([first, *between(first, last), last]))
