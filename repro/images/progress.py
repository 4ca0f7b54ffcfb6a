"""Progress of a long loop on stderr: a bar on a terminal, one plain line elsewhere."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def track(items: Iterable[T], text: str, total: float | None) -> Iterator[T]:
    """The items, with `text` and how many of `total` are done."""
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as bar

    yield from bar(items, text, total, console=Console(stderr=True), transient=True)
