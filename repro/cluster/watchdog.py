"""Finds which rank the others wait for: every rank has a heartbeat in the store, and none outlives a failed run.

Once a second a thread of each rank writes the rank's position, and some read the others' (`repro.cluster.stalls`). So a
rank that is frozen, hangs or is cut off is found long before a collective has waited for `timeout_s`. Time is counted
in beats, that of a collective too: where all processes were stopped (Ctrl-Z, SLURM's suspend, a closed laptop), no rank
missed any, and the run goes on. Gloo and NCCL would count that time; so they are given one that never comes.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from repro.cluster import stalls
from repro.cluster.stalls import Position
from repro.json_text import json_text

if TYPE_CHECKING:
    import torch.distributed as dist

BEAT_S = 1.0
GRACE_S = 15.0  # how long a rank may take to end once the run has failed
AT_WORK_S = 600.0  # how long ranks of one process may go on with what ends by itself: a step, an upload
STUCK_S = 3.0  # the same, where the others were found to wait in vain: nothing wakes them
DEAF_BEATS = 40  # how long a store on another machine may take to answer
LOOKERS = 16  # ranks that look at all positions: where each of many does, rank 0's store takes a core from its training
START = "the start"  # what a rank is in until all have met, as in a collective
START_S = 25.0  # between the arrivals of two ranks, where this program starts them all
CAUSE = "cause"  # the store's key for the first error of any rank
STALLED = "stalled"  # its key for: a heartbeat found the error, and no rank will end by itself

Where = Callable[[], tuple[str | None, float]]  # in which collective, since when (time.perf_counter)
Words = Callable[[str], None]  # what a process does with the reason before it ends itself


@contextmanager
def watched(
    store: dist.Store,
    rank: int,
    size: int,
    where: Where,
    last_words: Words,
    remote: bool,
    timeout_s: float,
    address: str = "",
) -> Iterator[None]:
    """Publishes, while inside, where this thread is, watches the others, and ends a process that outlives a failed run.

    A collective may wait for `timeout_s`. `remote`: the store is another machine's, which may be gone. `address`: this
    rank's on the ranks' network, "" where no link can be cut.
    """
    done = threading.Event()
    heart = Heart(store, rank, size, where, last_words, timeout_s, address)
    jobs = [("watch", heart.beat), *([("guard", heart.guard)] if remote and rank else [])]
    threads = [threading.Thread(target=job, args=(done,), name=f"{name}-{rank}", daemon=True) for name, job in jobs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join(timeout=BEAT_S)  # it hangs if the store does


class Heart:
    """The heartbeat of one rank, made by the rank's own thread."""

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        where: Where,
        last_words: Words,
        timeout_s: float,
        address: str,
    ):
        self.store, self.rank, self.size, self.where, self.last_words = store, rank, size, where, last_words
        self.timeout_s = timeout_s
        self.effort, self.others = stalls.Effort(), stalls.Others(rank)
        self.links = stalls.Links(store, rank, size, address) if address else None
        self.host = socket.gethostname()
        self.looks = size > 1 and rank % -(-size // LOOKERS) == 0
        self.beats = 0
        self.begun, self.waited = 0.0, 0  # of the collective it is in: when, and for how many beats
        self.seen: list[Position | None] = [None] * size

    def beat(self, done: threading.Event) -> None:
        failed_at: float | None = None
        idle_at = 0.0
        while not done.wait(BEAT_S if self.beats else 0):
            grace = GRACE_S
            try:
                self.store.set(_key(self.rank), json_text(asdict(self.position())))
                failed = self.store.check([CAUSE])
                if not failed and self.looks and self.beats % stalls.LOOK_EVERY == 0:
                    failed = self.look()
                if failed and self.store.check([STALLED]):
                    grace = STUCK_S
            except RuntimeError:  # the store went with rank 0
                failed = True
            self.beats += 1
            now = time.monotonic()
            if not failed:
                failed_at = None
                continue
            if failed_at is None:
                failed_at = idle_at = now
            if now - failed_at < AT_WORK_S and self.at_work():
                idle_at = now
            elif now - idle_at > grace:
                self.end(grace)

    def at_work(self) -> bool:
        """Returns whether this process ends an upload, or holds several ranks of which one works.

        That one's next message fails, and those that wait for it fail after it. To end the process would end a sweep's
        later runs too.
        """
        if self.where()[0] == stalls.W_AND_B:
            return True
        before = self.seen
        with suppress(RuntimeError):  # the store went with rank 0
            self.seen = positions(self.store, self.size)
        here = [
            (old, new)
            for old, new in zip(before, self.seen, strict=True)
            if new is not None and (new.pid, new.host) == (os.getpid(), self.host)
        ]
        return len(here) > 1 and any(
            old is not None and old.beat != new.beat and stalls.works(new) for old, new in here
        )

    def position(self) -> Position:
        inside, since = self.where()
        seconds = time.perf_counter() - since
        self.begun, self.waited = since, self.waited + 1 if inside is not None and since == self.begun else 0
        still = self.effort.still(busy=inside is not None)
        unreached = self.links.unreached(0.0 if inside is None else seconds) if self.links is not None else []
        return Position(inside, seconds, self.beats, still, os.getpid(), self.host, unreached)

    def look(self) -> bool:
        """Returns whether the others wait for some rank in vain; tells all of them why."""
        before, self.seen = self.seen, positions(self.store, self.size)
        reason = self.others.stalled(self.seen) or self.overdue(before)
        if reason is None:
            return False
        if self.store.compare_set(CAUSE, "", reason).decode() == reason:
            self.store.set(STALLED, "")
        return True

    def overdue(self, before: list[Position | None]) -> str | None:
        """Returns for which rank this one has waited longer than it may; `before`: the positions of the last look."""
        inside, since = self.where()
        most_s = self.timeout_s + (START_S if inside == START else 0)
        if inside is None or since != self.begun or self.waited * BEAT_S <= most_s:  # another call may have begun since
            return None
        return diagnose(self.rank, f"rank {self.rank} waited {self.timeout_s:g} s in {inside}", before, self.seen)

    def guard(self, done: threading.Event) -> None:
        """Ends the process if the store is silent, on a thread of its own: the heartbeat's own call never returns."""
        seen, silent = -1, 0
        while not done.wait(BEAT_S):
            silent = silent + 1 if seen == self.beats else 0
            seen = self.beats
            if silent > DEAF_BEATS:
                self.last_words(f"rank 0 is gone: killed, frozen or cut off; its store was silent for {silent} s")
                os._exit(1)

    def end(self, grace: float) -> None:
        """Ends the process: the rank is stuck where no exception reaches it, in gloo, a kernel, a read, a lock."""
        reason = f"rank {self.rank} hung {grace:g} s after the run failed"
        with suppress(RuntimeError):
            if self.store.check([CAUSE]):
                reason = self.store.get(CAUSE).decode()
        self.last_words(reason)
        os._exit(1)


def explain(store: dist.Store, rank: int, size: int, error: str) -> str:
    """Returns why the run failed: the error of the rank that failed first, or which rank caused this rank's `error`.

    Reads all positions twice, so it takes some seconds: a rank without a beat in between is gone.
    """
    causes: list[str] = []

    def look() -> None:
        with suppress(RuntimeError):
            if not store.check([CAUSE]):
                time.sleep(0.5)  # the failing rank disconnects while it reports
            if not store.check([CAUSE]):
                before = positions(store, size)
                time.sleep(2.5 * BEAT_S)
                store.compare_set(CAUSE, "", diagnose(rank, error, before, positions(store, size)))
            causes.append(store.get(CAUSE).decode())

    thread = threading.Thread(target=look, daemon=True)  # a call to a frozen rank 0 never returns
    thread.start()
    thread.join(timeout=10 * BEAT_S)
    return causes[0] if causes else f"rank 0 is gone: killed, frozen or cut off, its store with it. {error}"


def positions(store: dist.Store, size: int) -> list[Position | None]:
    """Returns what each rank published last; None where it never did."""
    keys = [_key(rank) for rank in range(size)]
    if store.check(keys):  # then in one request: one for each takes its machine 40 times as long
        return [Position(**json.loads(text)) for text in store.multi_get(keys)]
    return [Position(**json.loads(store.get(key))) if store.check([key]) else None for key in keys]


def diagnose(rank: int, error: str, before: list[Position | None], after: list[Position | None]) -> str:
    """Names the ranks that `rank` waited for when its collective failed with `error`."""
    others = [(r, before[r], after[r]) for r in range(len(after)) if r != rank]
    gone = [str(r) for r, old, new in others if new is None or (old is not None and old.beat == new.beat)]
    late = [f"{r} (for {new.seconds:.0f} s)" for r, _, new in others if new is not None and new.inside is None]
    waits = [f"rank {r} in {new.inside}" for r, _, new in others if new is not None]
    if gone:
        return f"rank {', '.join(gone)} is gone: killed, frozen or cut off. {error}"
    if late:
        return f"rank {', '.join(late)} is in no collective while others wait for it. {error}"
    return f"{error}. The others wait too: {'; '.join(waits)}"


def _key(rank: int) -> str:
    return f"position/{rank}"
