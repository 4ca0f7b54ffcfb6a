"""Starts all ranks or none: each rank waits for all, and the error of one that cannot start ends the others.

Gloo itself would wait for that rank and ignore signals.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from repro.cluster import door
from repro.cluster.environment import Place
from repro.cluster.preempt import Interrupt
from repro.cluster.watchdog import CAUSE
from repro.config.schema import Config, ConfigError, RunError

if TYPE_CHECKING:
    import torch.distributed as dist

TELL_S = 15.0  # to wait, where one that cannot begin has something to say, for rank 0 to come, and then for the others
HURRY_S = 3.0  # to wait for a rank, once the run was told to stop: there is nothing to save yet
NAP_S = 0.02
ALL = "all started"  # the store's key for: rank 0 has seen all the others


def assemble(store: dist.Store, rank: int, size: int, patience_s: float, interrupt: Interrupt) -> None:
    """Waits for all ranks, `patience_s` after each arrival. Raises RunError; KeyboardInterrupt when told to stop."""
    missing, since = set(range(size)), time.monotonic()
    store.set(_key(rank), "")
    while missing:
        come = {other for other in missing if store.check([_key(other)])}
        missing, since = missing - come, time.monotonic() if come else since
        if store.check([CAUSE]):
            raise RunError(_heard(store, rank))
        if interrupt.final and time.monotonic() - since > HURRY_S:
            raise KeyboardInterrupt
        if time.monotonic() - since > patience_s:
            names = ", ".join(map(str, sorted(missing)))
            store.compare_set(CAUSE, "", f"rank {names} did not start within {patience_s:g} s after the others")
        elif missing:
            time.sleep(NAP_S)
    if rank == 0:
        store.set(ALL, "")


def meet(config: Config, place: Place, timeout_s: float) -> dist.Store:
    """Returns the keys of one run: all runs of a sweep use one store, and must not read those of the one before.

    Raises RunError where it is not there within `timeout_s`, or a rank has said in it by now why it cannot start.
    """
    import torch.distributed as dist

    try:
        store = dist.PrefixStore(_name(config), door.store(place, timeout_s))
        cause = _heard(store, place.rank) if store.check([CAUSE]) else None
    except (RuntimeError, ValueError) as error:  # torch's own, and of torchrun's variables
        raise RunError(f"rank {place.rank} did not reach the store of rank 0: {error}") from error
    if cause is not None:
        raise RunError(cause)
    return store


@contextmanager
def kept(store: dist.Store, place: Place) -> Iterator[None]:
    """Keeps the store that srun's rank 0 has in its own process, where not all start, until the others know why.

    It waits for them `TELL_S` at most: to one that comes later, or has no store to read, this rank is only gone.
    """
    try:
        yield
    except Exception:  # a second Ctrl-C is none: it reaches all ranks
        unaware, end = set(range(1, place.size)), time.monotonic() + TELL_S
        while place.rank == 0 and place.token and unaware and time.monotonic() < end and not store.check([ALL]):
            time.sleep(NAP_S)
            unaware = {rank for rank in unaware if not store.check([_told(rank)])}
        raise


def _name(config: Config) -> str:
    """Returns what names a run to all its ranks, also to one that has found other data, and so has another folder."""
    same = dataclasses.replace(config, data=dataclasses.replace(config.data, fingerprint=""))
    return f"{config.results}/{config.experiment}/{same.run_id} of {config.data.root}"


def load(config: Config, place: Place, store: dist.Store, share: Callable[[Config], Any]) -> Any:
    """Returns `share(config)`; where that fails, the other ranks end with its error and do not wait for this one."""
    try:
        return share(config)
    except BaseException as error:
        told = failed(store, place.rank, error)
        raise (error if isinstance(error, ConfigError | KeyboardInterrupt) else told) from error


def tell(config: Config, place: Place, error: ConfigError, all_runs: bool = False) -> None:
    """Tells ranks that wait for this one to begin `config` why it does not, if there is a store by now.

    `all_runs`: nor will it begin any other run of a sweep.
    """
    reason = RunError(f"rank {place.rank} did not start any run: {error}") if all_runs else error
    with suppress(RunError):  # all ranks may have found the same error, and rank 0 be gone
        store = meet(config, place, TELL_S)
        with kept(store, place):
            raise failed(store, place.rank, reason)


def failed(store: dist.Store, rank: int, error: BaseException) -> RunError:
    """Tells the others why this rank cannot start; returns the error of the rank that failed first."""
    known = isinstance(error, RunError)
    reason = str(error) if known else f"rank {rank} could not start: {str(error) or repr(error)}"
    try:
        store.compare_set(CAUSE, "", reason)
        return RunError(_heard(store, rank))
    except RuntimeError:  # the store went with rank 0
        return RunError(reason if known else f"rank 0 ended while rank {rank} started: look in the log for its error")


def is_lost(error: str) -> bool:
    """Returns whether a run's error says that ranks are not there: those of a launcher do not come back."""
    return re.match(r"rank [\d, ]+ (is gone|is frozen or gone|did not start)", error) is not None


def _heard(store: dist.Store, rank: int) -> str:
    """Returns the error of the rank that failed first, and lets rank 0 know that this one has read it."""
    cause = store.get(CAUSE).decode()
    store.set(_told(rank), "")
    return cause


def _key(rank: int) -> str:
    return f"started/{rank}"


def _told(rank: int) -> str:
    return f"told/{rank}"
