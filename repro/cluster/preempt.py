"""Told to stop: a signal sets a flag, the ranks agree after a step and save, rank 0 requeues the job."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from repro import environment

# USR2 comes from `#SBATCH --signal` before the time limit, TERM from scancel, a preempting job, docker stop.
SIGNALS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)


class Interrupt(threading.Event):
    """Set: save and stop at the next agreement of the ranks. `final`: by TERM or INT, so do not requeue."""

    final = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """A signal handler. A second Ctrl-C does not wait for the agreement."""
        if number == signal.SIGINT and self.final:
            raise KeyboardInterrupt
        self.final = self.final or number != signal.SIGUSR2
        self.set()


@contextmanager
def listening() -> Iterator[Interrupt]:
    """While inside, USR2, TERM and INT set the flag instead of ending the process. Main thread only."""
    interrupt = Interrupt()
    before = {number: signal.signal(number, interrupt.handle) for number in SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # whoever started this program may have shielded it
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def shielded() -> Iterator[None]:
    """Programs started inside inherit that USR2 is blocked: it comes to them too, and would end them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def requeue() -> str:
    """Put this SLURM job back into the queue, once everything is saved. Returns what to tell the user.

    Call it last and on rank 0 alone: SLURM ends the job's steps for it.
    """
    job = environment.job()
    if job is None:
        return "type the same command to go on"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # SLURM ends this process too: hear it out
    try:
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60)
        problem = done.stderr.strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    return f"could not requeue job {job} ({problem}): submit it again to go on" if problem else f"job {job} is requeued"
