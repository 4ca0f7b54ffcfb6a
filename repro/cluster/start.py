"""Starts all ranks or none: each rank waits for all, and the error of one that cannot start ends the others.

Gloo itself would wait for that rank for `timeout_s` and ignore signals.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from repro.cluster.preempt import Interrupt
from repro.cluster.watchdog import CAUSE
from repro.config.schema import RunError

if TYPE_CHECKING:
    import torch.distributed as dist

START_S = 25.0  # between the arrivals of two ranks, where this program starts them all
HURRY_S = 3.0  # the same, once the run was told to stop: there is nothing to save yet
NAP_S = 0.02


def assemble(store: dist.Store, rank: int, size: int, patience_s: float, interrupt: Interrupt) -> None:
    """Waits for all ranks, `patience_s` after each arrival. Raises RunError; KeyboardInterrupt when told to stop."""
    missing, since = set(range(size)), time.monotonic()
    store.set(_key(rank), "")
    while missing:
        come = {other for other in missing if store.check([_key(other)])}
        missing, since = missing - come, time.monotonic() if come else since
        if store.check([CAUSE]):
            raise RunError(store.get(CAUSE).decode())
        if interrupt.final and time.monotonic() - since > HURRY_S:
            raise KeyboardInterrupt
        if time.monotonic() - since > patience_s:
            names = ", ".join(map(str, sorted(missing)))
            store.compare_set(CAUSE, "", f"rank {names} did not start within {patience_s:g} s after the others")
        elif missing:
            time.sleep(NAP_S)


def failed(store: dist.Store, rank: int, error: BaseException) -> RunError:
    """Tells the others why this rank cannot start; returns the error of the rank that failed first."""
    reason = str(error) if isinstance(error, RunError) else f"rank {rank} could not start: {error or repr(error)}"
    store.compare_set(CAUSE, "", reason)
    return RunError(store.get(CAUSE).decode())


def _key(rank: int) -> str:
    return f"started/{rank}"
