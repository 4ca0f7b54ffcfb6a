"""Starts all ranks or none: each rank waits for all, and the error of one that cannot start ends the others.

Gloo itself would wait for that rank and ignore signals.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from repro.cluster.environment import Place
from repro.cluster.preempt import Interrupt
from repro.cluster.watchdog import CAUSE
from repro.config.schema import Config, ConfigError, RunError

if TYPE_CHECKING:
    import torch.distributed as dist

TELL_S = 15.0  # to wait for rank 0 to come, where one that cannot begin has something to say
HURRY_S = 3.0  # to wait for a rank, once the run was told to stop: there is nothing to save yet
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


def meet(config: Config, place: Place, timeout_s: float) -> dist.Store:
    """Returns the keys of one run: all runs of a sweep use one store, and must not read those of the one before.

    Raises RunError where it is not there within `timeout_s`.
    """
    import torch.distributed as dist

    try:
        return dist.PrefixStore(_name(config), place.store(timeout_s))
    except (RuntimeError, ValueError) as error:  # torch's own, and of torchrun's variables
        raise RunError(f"rank {place.rank} did not reach the store of rank 0: {error}") from error


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


def tell(config: Config, place: Place, error: ConfigError) -> None:
    """Tells ranks that wait for this one to begin `config` why it does not, if there is a store by now."""
    with suppress(RunError):  # all ranks may have found the same error, and rank 0 be gone
        failed(meet(config, place, TELL_S), place.rank, error)


def failed(store: dist.Store, rank: int, error: BaseException) -> RunError:
    """Tells the others why this rank cannot start; returns the error of the rank that failed first."""
    known = isinstance(error, RunError)
    reason = str(error) if known else f"rank {rank} could not start: {str(error) or repr(error)}"
    try:
        store.compare_set(CAUSE, "", reason)
        return RunError(store.get(CAUSE).decode())
    except RuntimeError:  # the store went with rank 0
        return RunError(reason if known else f"rank 0 ended while rank {rank} started: look in the log for its error")


def is_lost(error: str) -> bool:
    """Returns whether a run's error says that ranks are not there: those of a launcher do not come back."""
    return re.match(r"rank [\d, ]+ (is gone|is frozen or gone|did not start)", error) is not None


def _key(rank: int) -> str:
    return f"started/{rank}"
