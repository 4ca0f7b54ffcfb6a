"""P ranks: threads of this process, processes of this machine, or what torchrun or srun started; one `Collective` each."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from repro import transport
from repro.collective import Collective, CollectiveError
from repro.config import Config, ConfigError, RunError
from repro.environment import Place, discover

GRACE_S = 15.0  # how long the others may take to notice that a rank has failed, before they are killed
CAUSE = "cause"  # the store's key for the first error of any rank


@dataclass
class Rank:
    """One of P ranks, and its ways to the others."""

    collective: Collective  # the gradient's traffic: counted
    control: Collective  # agreement, comparison, evaluation: not counted
    device: torch.device
    alone: bool  # it has its machine (or its GPU) to itself, so that its clock is a node's clock
    interrupt: threading.Event = field(default_factory=threading.Event)  # set: save and stop at the next agreement

    store: dist.Store | None = None

    def cause(self, error: CollectiveError) -> RunError:
        """What to report for a failed collective: the error of the rank that failed first, if it could still say it."""
        time.sleep(0.5)  # the failing rank hangs up as it reports
        if self.store is not None and self.store.check([CAUSE]):
            return RunError(self.store.get(CAUSE).decode())
        return RunError(str(error))

    @property
    def rank(self) -> int:
        return self.collective.rank

    @property
    def size(self) -> int:
        return self.collective.size


Share = Callable[[Config], Any]
Main = Callable[[Config, Rank, Any], Any]


def launch(config: Config, main: Main, share: Share) -> Any:
    """Run `main(config, rank, share(config))` on every rank; return what rank 0 returned.

    `share` is called once a process. Raises RunError with the error of the rank that failed first.
    """
    place = discover(os.environ)
    if place is not None:
        if place.size != config.nodes:
            raise ConfigError(
                f"nodes={config.nodes}, but the launcher started {place.size} ranks; type nodes={place.size}, "
                f"or start {config.nodes} ranks"
            )
        interrupt = threading.Event()
        return run_rank(config, place, place.store(config.timeout_s), main, share(config), interrupt)
    if config.cluster.name == "environment":
        raise ConfigError("cluster=environment, but neither torchrun nor srun started this; type cluster=local")
    if config.cluster.name == "processes":
        return _processes(config, main, share)
    return _threads(config, main, share)


def run_rank(config: Config, place: Place, store: dist.Store, main: Main, data: Any, interrupt: threading.Event) -> Any:
    """Join the others as one rank and run `main`. The first rank to fail leaves its error in the store for all."""
    torch.set_num_threads(config.threads or max(1, len(os.sched_getaffinity(0)) // place.local_size))
    device = _device(config, place)
    own_gpu = device.type == "cuda" and torch.cuda.device_count() >= place.local_size
    if own_gpu:
        wire = transport.nccl(store, place.rank, place.size, config.timeout_s, device)
    else:
        wire = transport.gloo(store, place.rank, place.size, config.timeout_s)
    control = Collective(wire)
    rank = Rank(Collective(wire), control, device, own_gpu, interrupt, store)
    try:
        machines = control.gather_objects(socket.gethostname())
        rank.alone = own_gpu or len(set(machines)) == place.size
        result = main(config, rank, data)
        control.barrier()  # nobody hangs up while another still listens
        return result
    except CollectiveError as error:
        raise rank.cause(error) from error
    except BaseException as error:
        known = isinstance(error, RunError | ConfigError)
        reason = str(error) if known else _unexpected(config, place.rank, error)
        store.compare_set(CAUSE, "", reason)
        raise error if known else RunError(reason) from error
    finally:
        wire.close()


def _unexpected(config: Config, rank: int, error: BaseException) -> str:
    """One line about an error that nobody foresaw; its traceback goes into the run folder."""
    path = config.folder / f"error-rank-{rank}.txt"
    try:
        path.write_text("".join(traceback.format_exception(error)))
        where = f" (traceback in {path})"
    except OSError:
        where = ""
    return f"rank {rank}: {type(error).__name__}: {error}{where}"


def _device(config: Config, place: Place) -> torch.device:
    if config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("device=cuda, but torch finds no GPU here; type device=cpu")
    return torch.device("cuda", place.local_rank % torch.cuda.device_count())


def _threads(config: Config, main: Main, share: Share) -> Any:
    """Ranks as threads, each with a gloo group of its own on one store in memory: 32 of them start within a second."""
    store, data, size = dist.HashStore(), share(config), config.nodes
    interrupt, failures = threading.Event(), list[BaseException]()
    results: list[Any] = [None] * size

    def body(number: int) -> None:
        try:
            place = Place(number, size, number, size)
            results[number] = run_rank(config, place, store, main, data, interrupt)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(number,), name=f"rank-{number}") for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results[0]


def _processes(config: Config, main: Main, share: Share) -> Any:
    """Ranks as processes, forked from a server that has imported torch once and run nothing with it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["repro.trainer", "repro.ranks"])
    with tempfile.TemporaryDirectory(prefix="repro-") as folder:
        ranks = [
            context.Process(target=_process, args=(config, number, folder, main, share), name=f"rank-{number}")
            for number in range(config.nodes)
        ]
        for rank in ranks:
            rank.start()
        killed = _watch(ranks)
        outcomes = [pickle.loads(path.read_bytes()) for path in sorted(Path(folder).glob("outcome-*"))]
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if killed:
        raise RunError(killed)
    if errors:
        raise errors[0]
    return outcomes[0]


def _watch(ranks: list[Any]) -> str | None:
    """Wait for all; when one dies the others get GRACE_S. Says which rank was killed from outside, if one was."""
    deadline, killed = None, None
    while alive := [rank for rank in ranks if rank.is_alive()]:
        multiprocessing.connection.wait([rank.sentinel for rank in alive], timeout=1.0)
        for rank in ranks:
            if rank.exitcode and deadline is None:
                deadline = time.monotonic() + GRACE_S
                killed = f"{rank.name} was killed by signal {-rank.exitcode}" if rank.exitcode < 0 else None
        if deadline is not None and time.monotonic() > deadline:
            for rank in alive:
                rank.kill()
    return killed


def _process(config: Config, number: int, folder: str, main: Main, share: Share) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:  # killed outright, the launcher must not leave ranks behind that hold its run folder
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    outcome: Any
    try:
        store = dist.FileStore(os.path.join(folder, "store"), config.nodes)
        place = Place(number, config.nodes, number, config.nodes)
        outcome = run_rank(config, place, store, main, share(config), threading.Event())
    except BaseException as error:
        outcome = error if isinstance(error, RunError | ConfigError) else RunError(f"rank {number}: {error!r}")
    Path(folder, f"outcome-{number:06d}").write_bytes(pickle.dumps(outcome))
    if isinstance(outcome, BaseException):
        raise SystemExit(1)
