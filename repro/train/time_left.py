"""Says between the runs of a sweep how many are done, and about how long the others will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from repro.config.schema import Config
from repro.screen import duration


class Forecast(NamedTuple):
    """What several runs are said to take, in words, and the seconds of each; None = they cannot be told."""

    text: str
    seconds: Sequence[float] | None


class TimeLeft:
    """Corrects the forecast of the runs that are left by what those before them took."""

    def __init__(self, runs: Sequence[Config], left: Sequence[Config], forecast: Forecast | None):
        """`left`: those of `runs` that are not done yet, which `forecast` is of."""
        known = None if forecast is None else forecast.seconds
        self.known = known is not None
        self.expected = dict(zip([config.folder for config in left], known or [0.0] * len(left), strict=True))
        self.total, self.since, self.took_s, self.over_s = len(runs), time.monotonic(), 0.0, 0.0

    def after(self, config: Config, trained: bool = True) -> str:
        """Counts one run; returns `12 of 200 runs, about 40 min left`, or "" if it was the last.

        One that was not `trained`, as it failed or another process has it, says nothing of the pace.
        """
        expected_s, now = self.expected.pop(config.folder, 0.0), time.monotonic()
        if trained:
            self.over_s, self.took_s = self.over_s + expected_s, self.took_s + now - self.since
        self.since = now
        if not self.expected:
            return ""
        text = f"{self.total - len(self.expected)} of {self.total} runs"
        if not self.known:
            return text
        pace = self.took_s / self.over_s if self.over_s else 1.0
        return f"{text}, about {duration(pace * sum(self.expected.values()))} left"
