"""Shows the progress of a run on stderr: a bar on a terminal, a plain line per evaluation elsewhere."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Concatenate, ParamSpec, TypeVar

from repro import waiting
from repro.cluster.stalls import TERMINAL
from repro.config.schema import Config
from repro.screen import duration, plural, three

Waits = Callable[[str], AbstractContextManager[object]]
P = ParamSpec("P")
S = TypeVar("S", bound="Lines")


def _drawn(action: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Says while a method runs that its rank waits for the terminal: Ctrl-S or a pager may hold it for minutes."""

    @functools.wraps(action)
    def held(self: S, *arguments: P.args, **options: P.kwargs) -> None:
        with self.waits(TERMINAL):
            action(self, *arguments, **options)

    return held


class Lines:
    """Prints plain lines, for logs."""

    def __init__(self, config: Config, waits: Waits = nullcontext):
        self.config, self.waits, self.began = config, waits, time.monotonic()
        self.say(f"{config.folder.name}: {plural(config.nodes, 'node')}, {extent(config)}")

    @_drawn
    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def log(self, line: dict[str, Any]) -> None:
        if line["kind"] == "eval":
            measure, pace = self.config.data.metric, line["samples_per_s"]
            rate = "" if pace is None else f"{three(pace)} {measure.samples}/s  "
            self.say(
                f"  epoch {round(line['epoch'], 2):g} of {self.config.epochs}  step {line['step']}  "
                f"train loss {three(line['train_loss'])}  test {measure.said(line[measure.key])}  "
                f"{rate}{duration(time.monotonic() - self.began)}"
            )

    def phase(self, name: str, total: int | None = None, unit: str = "", done: int = 0) -> None:
        """Tells what the run does from now on, and of how many units; None = it is not known."""

    def advance(self) -> None:
        """Counts one unit of the phase."""

    def close(self) -> None:
        pass


class Bar(Lines):
    """Prints the lines above a moving bar, which says what the run does."""

    def __init__(self, config: Config, waits: Waits = nullcontext):
        self.bar = waiting.progress()
        self.tasks: dict[str, Any] = {}
        self.now: Any = None
        with waits(TERMINAL):
            self.bar.start()
        super().__init__(config, waits)

    @_drawn
    def say(self, text: str) -> None:
        self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    @_drawn
    def phase(self, name: str, total: int | None = None, unit: str = "", done: int = 0) -> None:
        for task in self.tasks.values():
            self.bar.update(task, visible=False)
        if name not in self.tasks:
            text = f"{self.config.algo.name}: {name}"
            self.tasks[name] = self.bar.add_task(text, total=total, unit=unit, completed=done)
        elif done == 0:  # one that goes on keeps its pace, for the time left
            self.bar.reset(self.tasks[name], total=total)
        self.now = self.tasks[name]
        self.bar.update(self.now, visible=True)

    @_drawn
    def advance(self) -> None:
        self.bar.advance(self.now)

    @_drawn
    def log(self, line: dict[str, Any]) -> None:
        if line["kind"] == "step":
            text = f"{self.config.algo.name}: training, loss {line['loss']:.3f}"
            self.bar.update(self.now, completed=line["step"], description=text)
        super().log(line)

    @_drawn
    def close(self) -> None:
        self.bar.stop()


def show(config: Config, waits: Waits = nullcontext) -> Lines:
    """Returns what shows a run; `waits(what)` is held while it writes."""
    return Bar(config, waits) if sys.stderr.isatty() else Lines(config, waits)


def warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)


def extent(config: Config) -> str:
    """Returns how much a run trains: `3 epochs`, or `20 steps of 141 epochs`; or that it trains nothing."""
    if config.node is not None:
        return "iterations of stated compute"
    epochs = plural(config.epochs, "epoch")
    return epochs if config.steps is None else f"{plural(config.steps, 'step')} of {epochs}"


def sent(config: Config, parameters: int, entries: Callable[[float], int]) -> str:
    """Returns how many entries a node selects: `k = 269 of 269,722 parameters (density 0.001), in its warm-up 1,078`.

    `entries` gives k for a density.
    """
    if not config.algo.sparse:
        return f"{parameters:,} parameters"
    warm = ", ".join(f"{entries(density):,}" for density in config.density_warmup)
    return f"k = {entries(config.density):,} of {parameters:,} parameters (density {config.density:g})" + (
        f", in its warm-up {warm}" if warm else ""
    )
