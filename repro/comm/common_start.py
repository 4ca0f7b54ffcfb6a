"""Times what all ranks of one machine do at once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

from repro.comm.collective import Collective
from repro.comm.sockets import Clock, SocketTransport

PLAYED = "messages played again"  # what a rank says that it waits for: minutes, without work and in no Collective
PAUSE_S = 0.03  # before a common start: all ranks sleep; up to a dilation of 64 all token buckets fill up


class Stopped(KeyboardInterrupt):
    """Ends a measurement on all ranks at once, as one of them was told to stop."""


class Told(Protocol):
    """Says whether a rank was told to stop."""

    def is_set(self) -> bool: ...


class Waiting(Protocol):
    """A rank, as `repro.cluster.ranks` makes it, which tells the others what it waits for."""

    control: Collective
    clock: Clock

    @property
    def interrupt(self) -> Told: ...

    def waits(self, what: str) -> AbstractContextManager[None]: ...


@contextmanager
def first() -> Iterator[None]:
    """Lets this process run before other work of the machine while inside, where it may ask for that (root on Linux).

    Ranks in the lab sleep most of the time, and what they do between two messages must not wait for others. Gloo
    sends by threads of its own, so all threads that there are run so.
    """
    if not sys.platform.startswith("linux"):
        yield
        return
    before = {}
    for thread in map(int, os.listdir("/proc/self/task")):
        with suppress(OSError):  # it may not ask, or the thread has ended
            own = os.sched_getscheduler(thread), os.sched_getparam(thread)
            os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(1))
            before[thread] = own
    try:
        yield
    finally:
        for thread, own in before.items():
            with suppress(ProcessLookupError):
                os.sched_setscheduler(thread, *own)


def from_common_start(action: Callable[[], object], rank: Waiting, repeats: int) -> list[float]:
    """Returns on every rank the seconds of `action` from a common start to the last rank, `repeats` times. Collective.

    Raises Stopped on all of them before one of the repeats, where any rank was told to stop. The ranks must
    share one clock: they are processes of one machine. Where messages are held, that is the clock of a rank that is
    woken on time.
    """
    seconds, control, wire = list[float](), rank.control, rank.control.transport
    for _ in range(repeats):
        clocks, told = zip(*control.gather_objects((time.monotonic(), rank.interrupt.is_set())), strict=True)
        if any(told):
            raise Stopped
        start = max(clocks) + PAUSE_S
        start_ns = int(1e9 * start)
        if isinstance(wire, SocketTransport):
            with first(), rank.waits(PLAYED):
                wire.clock.sleep_until(start_ns, 0)  # who was in the agreement for longer is late, as one woken late
                action()
                seconds.append(1e-9 * (wire.clock.now_ns() - start_ns))
        else:
            with rank.waits(PLAYED):
                rank.clock.sleep_until(start_ns)  # so that nothing is late by what came before
                action()
            seconds.append(1e-9 * (time.monotonic_ns() - start_ns))
    return [max(ranks) for ranks in zip(*control.gather_objects(seconds), strict=True)]
