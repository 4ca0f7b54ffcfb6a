"""Which rank the others wait for: every rank tells the store where it is, and none outlives a failed run.

A collective that waits longer than `timeout_s` fails on the ranks that wait, but they do not know for whom.
So each rank has a thread that writes its position to the store once a second; the first that fails reads all.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch.distributed as dist

BEAT_S = 1.0
GRACE_S = 15.0  # how long a rank may take to end once the run has failed
CAUSE = "cause"  # the store's key for the first error of any rank

Where = Callable[[], tuple[str | None, float]]  # in which collective, since when (time.perf_counter)


@dataclass(frozen=True)
class Position:
    """Where a rank is: in which collective (None: in none), for how many seconds, and its beats so far."""

    inside: str | None
    seconds: float
    beat: int


@contextmanager
def watched(store: dist.Store, rank: int, position: Where) -> Iterator[None]:
    """While inside, publish this rank's `position()`; end the process if it outlives a failed run."""
    done = threading.Event()
    arguments = (store, rank, position, done)
    thread = threading.Thread(target=_beat, args=arguments, name=f"watch-{rank}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=BEAT_S)  # it hangs itself if the store does


def explain(store: dist.Store, rank: int, size: int, error: str) -> str:
    """The run's cause of failure: that of the rank which failed first, or who is behind this rank's `error`.

    Looks twice at all positions, so it takes some seconds: a rank that shows no beat in between is gone.
    """
    found: list[str] = []

    def look() -> None:
        with suppress(RuntimeError):
            if not store.check([CAUSE]):
                before = positions(store, size)
                time.sleep(2.5 * BEAT_S)
                store.compare_set(CAUSE, "", diagnose(rank, error, before, positions(store, size)))
            found.append(store.get(CAUSE).decode())

    thread = threading.Thread(target=look, daemon=True)  # a frozen rank 0 never answers, and no call says so
    thread.start()
    thread.join(timeout=10 * BEAT_S)
    return found[0] if found else f"rank 0 is gone: killed, frozen or cut off, its store with it. {error}"


def positions(store: dist.Store, size: int) -> list[Position | None]:
    """What each rank published last; None where it never did."""
    keys = [_key(rank) for rank in range(size)]
    return [Position(**json.loads(store.get(key))) if store.check([key]) else None for key in keys]


def diagnose(rank: int, error: str, before: list[Position | None], after: list[Position | None]) -> str:
    """Name the ranks that `rank` waited for when its collective failed with `error`."""
    others = [(r, before[r], after[r]) for r in range(len(after)) if r != rank]
    gone = [str(r) for r, old, new in others if new is None or (old is not None and old.beat == new.beat)]
    late = [f"{r} (for {new.seconds:.0f} s)" for r, _, new in others if new is not None and new.inside is None]
    waits = [f"rank {r} in {new.inside}" for r, _, new in others if new is not None]
    if gone:
        return f"rank {', '.join(gone)} is gone: killed, frozen or cut off. {error}"
    if late:
        return f"rank {', '.join(late)} is in no collective while others wait for it. {error}"
    return f"{error}. The others wait too: {'; '.join(waits)}"


def _beat(store: dist.Store, rank: int, position: Where, done: threading.Event) -> None:
    beat, failed_at = 0, None
    while not done.wait(BEAT_S if beat else 0):
        beat += 1
        try:
            inside, since = position()
            store.set(_key(rank), json.dumps(asdict(Position(inside, time.perf_counter() - since, beat))))
            failed = store.check([CAUSE])
        except RuntimeError:  # the store went with rank 0
            failed = True
        failed_at = (failed_at or time.monotonic()) if failed else None
        if failed_at is not None and time.monotonic() - failed_at > GRACE_S:
            # Stuck where no exception reaches it: in a kernel, a read, a lock.
            text = f"rank {rank} hangs {GRACE_S:g} s after the run failed: ending its process"
            print(text, file=sys.stderr, flush=True)
            os._exit(1)


def _key(rank: int) -> str:
    return f"position/{rank}"
