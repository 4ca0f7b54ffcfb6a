"""Stops a run on a signal: it sets a flag, the ranks agree after a step and save, and rank 0 requeues the job."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from repro.cluster import environment

# USR2 comes from `#SBATCH --signal` before the time limit, TERM from scancel, a preempting job, docker stop.
SIGNALS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)
LOST = signal.SIGHUP  # the terminal is gone; under nohup it is ignored, and stays so


class Interrupt(threading.Event):
    """When set, the ranks save and stop at their next agreement. `final`: not USR2 set it, so do not requeue."""

    final = False
    number: int | None = None  # the first signal
    stops_at: int | None = None  # the step after which the ranks agree next, once they train
    agreed = False  # whether it was set on any rank when the last run ended, for ranks that have one each
    speaks = False  # whether this process answers the user

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal. A second Ctrl-C does not wait for the agreement."""
        if number == signal.SIGINT and self.final:
            raise KeyboardInterrupt
        if self.speaks and number != signal.SIGUSR2 and not self.final:
            _answer(self.stops_at)
        self.number = self.number or number
        self.final = self.final or number != signal.SIGUSR2
        self.set()


class RankInterrupt(Interrupt):
    """Interrupts a rank in a process of its own: its launcher answers, and cleans up after a second Ctrl-C."""

    def handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.final:
            os._exit(128 + number)
        super().handle(number, frame)


def _answer(step: int | None) -> None:
    """Answers the user past Python's own buffers, which the interrupted code may be using."""
    when = "as soon as every rank is at the end of a step" if step is None else f"after step {step}"
    with suppress(OSError):
        os.write(2, f"\nrepro: stopping {when}; Ctrl-C again to stop now\n".encode())


@contextmanager
def listening(interrupt: Interrupt | None = None) -> Iterator[Interrupt]:
    """Lets, while inside, USR2, TERM, INT and HUP set the flag instead of ending the process. Main thread only."""
    if interrupt is None:
        interrupt, place = Interrupt(), environment.discover()
        interrupt.speaks = place is None or place.rank == 0
    heard = [*SIGNALS, *([LOST] if signal.getsignal(LOST) is not signal.SIG_IGN else [])]
    before = {number: signal.signal(number, interrupt.handle) for number in heard}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)  # the program that started this one may have blocked them
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def shielded() -> Iterator[None]:
    """Blocks USR2, TERM and HUP for programs started inside, which inherit that.

    What sends them to all processes at once, as SLURM and `timeout` do, would end these while the ranks still save.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM, LOST})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def requeue() -> tuple[str, bool]:
    """Puts this SLURM job back into the queue, once everything is saved. Returns what to tell the user, and if it did.

    Call it last and on rank 0 only: SLURM then ends the job's steps.
    """
    job = environment.job()
    if job is None:
        return "type the same command to go on", False
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # SLURM ends this process too: read its answer first
    try:
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60)
        problem = done.stderr.strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        return f"could not requeue job {job} ({problem}): submit it again to go on", False
    return f"job {job} is requeued", True
