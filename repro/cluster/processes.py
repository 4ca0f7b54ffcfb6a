"""Runs ranks as processes of this machine: starts, watches and ends all of them."""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import torch.distributed as dist

from repro.cluster import lab, preempt, streams
from repro.cluster.environment import Place
from repro.cluster.preempt import Interrupt
from repro.cluster.watchdog import CAUSE, GRACE_S, STALLED
from repro.config.schema import Config, ConfigError, RunError

RunRank = Callable[..., Any]  # ranks.run_rank, which imports this module


def launch(
    config: Config,
    run_rank: RunRank,
    main: Callable[..., Any],
    share: Callable[[Config], Any],
    interrupt: Interrupt,
    switch: lab.Lab | None = None,
) -> Any:
    """Returns what rank 0 returned. The ranks are forked from a server that imported torch and ran nothing with it."""
    context = multiprocessing.get_context("forkserver")
    dynamo = ["torch._dynamo"] if config.algo.module == "ddp" else []  # DDP imports it when made: seconds
    torchs = ["torch.distributed.pipelining"] if config.stages > 1 and config.node is None else []  # as well
    netlink = ["pyroute2"] if switch is not None else []  # 0.3 s, of each of 32 ranks
    context.set_forkserver_preload(
        [*_modules(functools.partial(run_rank, main=main, share=share)), *dynamo, *torchs, *netlink]
    )
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    with tempfile.TemporaryDirectory(prefix="repro-") as folder:
        ranks = [
            context.Process(
                target=_process,
                args=(config, number, folder, store.port, run_rank, main, share, switch),
                name=f"rank {number}",
            )
            for number in range(config.nodes)
        ]
        try:
            _start(ranks)
            failure = _watch(ranks, interrupt, store)
        finally:  # after a second Ctrl-C, or a rank that cannot start
            for rank in ranks:
                if rank.pid is not None and rank.is_alive():
                    rank.kill()
                    rank.join()
        # two Ctrl-C are one for a process that was too busy to take the first
        if interrupt.final and any(rank.exitcode == 128 + signal.SIGINT for rank in ranks):
            raise KeyboardInterrupt
        if failure is not None:
            raise RunError(failure)
        files = sorted(Path(folder).glob("outcome-*"))
        ends = [pickle.loads(path.read_bytes()) for path in files]  # noqa: S301  (our ranks', in a folder of ours)
    return _outcome(ends, config.nodes, interrupt, store)


def _modules(called: object) -> set[str]:
    """Returns the modules of what each rank will call, which are imported once, in the server."""
    if isinstance(called, functools.partial):
        return set[str]().union(*map(_modules, (called.func, *called.keywords.values())))
    return {called.__module__} - {"__main__"} if callable(called) else set()


def _start(ranks: list[Any]) -> None:
    resource_tracker.ensure_running()  # it leaves TERM unblocked, and the server of forks comes after it
    with preempt.shielded():  # until a rank listens, a signal for it waits
        for rank in ranks:
            try:
                rank.start()
            except (OSError, EOFError, RuntimeError) as error:
                reason = str(error) or "the process that starts ranks ended"
                instead = "Type fewer nodes, or free tasks and memory on this machine"
                if "AF_UNIX" in reason:  # the server of forks has its socket there
                    instead = f"TMPDIR={tempfile.gettempdir()} is too long a path: export TMPDIR=/tmp"
                raise RunError(f"{rank.name} of {len(ranks)} could not be started: {reason}. {instead}") from None


def _outcome(ends: list[tuple[Any, int | None]], size: int, interrupt: Interrupt, store: dist.Store) -> Any:
    outcomes = [outcome for outcome, _ in ends]
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    known = [error for error in errors if isinstance(error, RunError | ConfigError)]
    if known or errors:
        stops = [error for error in errors if isinstance(error, KeyboardInterrupt) and interrupt.final]
        raise (stops or known or errors)[0]
    if len(outcomes) < size:
        ended = "the ranks were ended from outside before they were done; type the same command to go on"
        raise RunError(store.get(CAUSE).decode() if store.check([CAUSE]) else ended)
    told = [(rank, number) for rank, (_, number) in enumerate(ends) if number in (signal.SIGTERM, signal.SIGINT)]
    if told and not interrupt.is_set():
        rank, number = told[0]
        text = f"repro: rank {rank} was told to stop by {signal.Signals(number).name}, and the others with it"
        print(text, file=sys.stderr, flush=True)
        interrupt.final = True
        interrupt.set()
    return outcomes[0]


def _watch(ranks: list[Any], interrupt: Interrupt, store: dist.Store) -> str | None:
    """Waits for all; when one dies the others get GRACE_S. Returns why the run failed where no rank can say it."""
    deadline, failure, told, oom = None, None, False, _killed_for_memory()
    while alive := [rank for rank in ranks if rank.is_alive()]:
        multiprocessing.connection.wait([rank.sentinel for rank in alive], timeout=1.0)
        if interrupt.is_set() and not told:
            told = True
            for rank in alive:
                with suppress(ProcessLookupError):  # it got the signal itself, and is done
                    os.kill(rank.pid, signal.SIGUSR2)
        for rank in ranks:
            if rank.exitcode and deadline is None:
                deadline = time.monotonic() + GRACE_S
                if rank.exitcode < 0:
                    failure = _ending(rank.name, -rank.exitcode, _killed_for_memory() > oom)
        if store.check([STALLED]) and failure is None:
            failure, deadline = store.get(CAUSE).decode(), 0.0
        if deadline is not None and time.monotonic() > deadline:
            for rank in alive:
                rank.kill()
    return failure


def _ending(name: str, number: int, memory: bool) -> str:
    if number != signal.SIGKILL:
        return f"{name} was killed by signal {number} ({signal.strsignal(number)})"
    less = "fewer nodes, a smaller batch_per_node or a smaller model need less"
    happened = f", and it has just done so: {less}" if memory else f"; if it did, {less}"
    return f"{name} was killed (signal 9), as the kernel does when memory runs out{happened}"


def _killed_for_memory() -> int:
    """Returns how many processes the kernel has killed for memory since it started; 0 where that is unknown."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _process(
    config: Config,
    number: int,
    folder: str,
    port: int,
    run_rank: RunRank,
    main: Any,
    share: Any,
    switch: lab.Lab | None,
) -> None:
    outcome: Any
    interrupt: Interrupt = preempt.RankInterrupt()
    try:
        streams.outlive_readers()
        with preempt.listening(interrupt):
            store = dist.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)
            address = ""
            if switch is not None:
                address = lab.enter(
                    switch, number, config.nodes
                )  # before any thread; the connection to the store stays outside
            parent = multiprocessing.parent_process()
            if parent is not None:  # a killed launcher must not leave ranks that hold its run folder
                threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
            place = Place(number, config.nodes, number, config.nodes)
            outcome = run_rank(config, place, store, main, share(config), interrupt, address=address, switch=switch)
    except BaseException as error:
        foreseen = isinstance(error, RunError | ConfigError | KeyboardInterrupt)
        outcome = error if foreseen else RunError(f"rank {number}: {error!r}")
    Path(folder, f"outcome-{number:06d}").write_bytes(pickle.dumps((outcome, interrupt.number)))
    if isinstance(outcome, BaseException):
        raise SystemExit(1)


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
