"""Shows on stderr what a command is waiting for: on a terminal a bar with the time left, elsewhere one plain line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
REDRAWN_S = 0.1  # seconds between two drawings of a bar


def track(items: Iterable[T], text: str, total: float | None) -> Iterator[T]:
    """Yields the items, and shows `text` and how many of `total` are done."""
    with counting(text, total) as advance:
        for item in items:
            yield item
            advance()


@contextmanager
def counting(text: str, total: float | None) -> Iterator[Callable[[], None]]:
    """Yields a call that counts one more of `total` as done.

    No thread draws the bar: what is counted may fork processes, which would inherit that thread's locks.
    """
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
        yield lambda: None
        return
    bar, drawn = progress(auto_refresh=False), 0.0
    task = bar.add_task(text, total=total, unit="")

    def advance() -> None:
        nonlocal drawn
        bar.advance(task)
        if time.monotonic() - drawn > REDRAWN_S:
            bar.refresh()
            drawn = time.monotonic()

    with bar:
        bar.refresh()
        yield advance


@contextmanager
def waiting(text: str, still: bool = False) -> Iterator[None]:
    """Shows `text` and the seconds so far while inside, on a terminal alone; `still`: without a thread that draws."""
    if not sys.stderr.isatty():
        yield
        return
    with progress(auto_refresh=not still) as bar:
        bar.add_task(text, total=None, unit="")
        bar.refresh()
        yield


def progress(auto_refresh: bool = True) -> Any:
    """Returns a bar of rich that is gone when it ends.

    A task whose total is known shows how many are done and the time left, another one the seconds so far. Tasks have a
    field `unit`, such as "steps".
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Count(ProgressColumn):
        def render(self, task: Task) -> Text:
            unit = f" {task.fields['unit']}" if task.fields["unit"] else ""
            return Text("" if task.total is None else f"{task.completed:.0f}/{task.total:.0f}{unit}")

    class Clock(ProgressColumn):
        def render(self, task: Task) -> Text:
            if task.total is None:
                return Text(f"{task.elapsed or 0:.0f} s")
            return Text("" if task.time_remaining is None else f"{_clock(task.time_remaining)} left")

    return Progress(
        TextColumn("{task.description}"), BarColumn(20), Count(), Clock(), console=Console(stderr=True),
        transient=True, auto_refresh=auto_refresh, redirect_stdout=sys.stdout.isatty(),
    )  # fmt: skip


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
