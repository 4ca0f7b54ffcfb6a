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
from repro.comm.common_start import Stopped
from repro.config.schema import Config, ConfigError, RunError

if TYPE_CHECKING:
    import torch.distributed as dist

TELL_S = 15.0  # to wait, where one that cannot begin has something to say, for rank 0 to come, and then for the others
HURRY_S = 3.0  # to wait for a rank, once the run was told to stop: there is nothing to save yet
NAP_S = 0.02
ALL = "all started"  # the store's key for: rank 0 has seen all the others
TOLD_TO_STOP = "was told to stop before all had started"


def assemble(store: dist.Store, rank: int, size: int, patience_s: float, interrupt: Interrupt) -> None:
    """Waits for all ranks, `patience_s` after each arrival. Raises RunError; Stopped where any rank was told to stop.

    Rank 0 alone asks after all the others: where all did, its store would answer to nothing else.
    """
    missing, since = set(range(size if rank == 0 else 1)), time.monotonic()
    store.set(_key(rank), "")
    while missing or not (rank == 0 or store.check([ALL])):
        come = {other for other in missing if store.check([_key(other)])}
        missing, since = missing - come, time.monotonic() if come else since
        if store.check([CAUSE]):
            cause = _heard(store, rank)
            raise _stopped(interrupt) if TOLD_TO_STOP in cause else RunError(cause)
        if interrupt.final and time.monotonic() - since > HURRY_S:
            raise _stopped(interrupt)
        if missing and time.monotonic() - since > patience_s:
            names = ", ".join(map(str, sorted(missing)))
            store.compare_set(CAUSE, "", f"rank {names} did not start within {patience_s:g} s after the others")
        elif missing or rank:
            time.sleep(NAP_S)
    if rank == 0:
        store.set(ALL, "")


def _stopped(interrupt: Interrupt) -> Stopped:
    """Lets this rank end as those do that were told: it begins no other run of a sweep, either."""
    interrupt.final = interrupt.agreed = True
    interrupt.set()
    return Stopped()


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
    except (Exception, Stopped) as error:  # a second Ctrl-C is none: it reaches all ranks
        if place.rank == 0 and place.token:
            _wait_until_told(store, place, only_those_here=isinstance(error, Stopped))  # SLURM kills soon
        raise


def _wait_until_told(store: dist.Store, place: Place, only_those_here: bool) -> None:
    unaware, end = set(range(1, place.size)), time.monotonic() + TELL_S
    if only_those_here:
        unaware = {rank for rank in unaware if store.check([_key(rank)])}
    while unaware and time.monotonic() < end and not store.check([ALL]):
        time.sleep(NAP_S)
        unaware = {rank for rank in unaware if not store.check([_told(rank)])}


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
    if isinstance(error, Stopped):
        reason = f"rank {rank} {TOLD_TO_STOP}"
    elif isinstance(error, KeyboardInterrupt):
        reason = f"rank {rank} was stopped at once by a second Ctrl-C"
    else:
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
