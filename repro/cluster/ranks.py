"""P ranks: threads of this process, processes of this machine, or what torchrun or srun started."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from repro import lab, preempt, transport, watchdog
from repro.collective import Collective, CollectiveError
from repro.config import Config, ConfigError, RunError
from repro.environment import Place, find_place
from repro.preempt import Interrupt
from repro.together import Together
from repro.watchdog import GRACE_S


@dataclass
class Rank:
    """One of P ranks, and its ways to the others."""

    collective: Collective  # the gradient's traffic: counted
    control: Collective  # agreement, comparison, evaluation: not counted
    device: torch.device
    alone: bool  # it has its machine (or its GPU) to itself, so that its clock is a node's clock
    store: dist.Store  # not for gradients: who is where, and what failed
    machines: list[str] = field(default_factory=list)  # of every rank
    interrupt: Interrupt = field(default_factory=Interrupt)  # set: save and stop at the next agreement
    together: Together | None = None  # where all ranks are threads on one device

    def cause(self, error: CollectiveError) -> RunError:
        """What to report for a failed collective: the error of the rank that failed first, or who is gone."""
        time.sleep(0.5)  # the failing rank hangs up as it reports
        return RunError(watchdog.explain(self.store, self.rank, self.size, str(error)))

    def position(self) -> tuple[str | None, float]:
        """The collective this rank is in (None: in none), since when (time.perf_counter)."""
        ways = [each.position for each in (self.collective, self.collective.other, self.control) if each]
        inside = next((inside for inside, _ in ways if inside), None)
        return inside, max(since for _, since in ways)

    @property
    def turns(self) -> AbstractContextManager[object]:
        """To compute in: threads that share a CPU, as many at once as it has cores. 32 at once would hold 32 times what
        backward keeps."""
        return self.together.turns if self.together and self.device.type == "cpu" else nullcontext()

    @property
    def rank(self) -> int:
        return self.collective.rank

    @property
    def size(self) -> int:
        return self.collective.size


Share = Callable[[Config], Any]
Main = Callable[[Config, Rank, Any], Any]


def launch(config: Config, main: Main, share: Share, interrupt: Interrupt | None = None) -> Any:
    """Run `main(config, rank, share(config))` on every rank; return what rank 0 returned.

    Setting `interrupt` asks every rank to save and stop.

    `share` is called once a process. Raises RunError with the error of the rank that failed first.
    """
    place, interrupt = find_place(config), interrupt or Interrupt()
    if place is not None:
        # A sweep's runs follow one another on torchrun's one store: the keys of one must not answer for the next.
        store = dist.PrefixStore(config.run_id, place.store(config.timeout_s))
        return run_rank(config, place, store, main, share(config), interrupt)
    if config.cluster.name == "processes":
        return _processes(config, main, share, interrupt)
    if config.cluster.name == "lab":
        with lab.lab(config.network.bits_per_s, config.cluster.options["delay_s"]) as switch:
            return _processes(config, main, share, interrupt, switch)
    return _threads(config, main, share, interrupt)


def run_rank(
    config: Config,
    place: Place,
    store: dist.Store,
    main: Main,
    data: Any,
    interrupt: Interrupt,
    together: Together | None = None,
) -> Any:
    """Join the others as one rank and run `main`. The first rank to fail leaves its error in the store for all."""
    torch.set_num_threads(threads_each(config, place.local_size))
    device = _device(config, place)
    own_gpu = _own_gpus(store, place, device)
    if own_gpu:
        wire = transport.nccl(store, place.rank, place.size, config.timeout_s, device)
    else:
        wire = transport.gloo(store, place.rank, place.size, config.timeout_s)
    control = Collective(wire)
    rank = Rank(Collective(wire), control, device, own_gpu, store, interrupt=interrupt, together=together)
    try:
        with watchdog.watched(store, place.rank, rank.position):
            return _run_rank(config, rank, main, data)
    finally:
        wire.close()


def threads_each(config: Config, local_size: int) -> int:
    """Of a rank, inside its operations."""
    return config.threads or max(1, len(os.sched_getaffinity(0)) // local_size)


def _run_rank(config: Config, rank: Rank, main: Main, data: Any) -> Any:
    try:
        rank.machines = rank.control.gather_objects(socket.gethostname())
        rank.alone = rank.alone or len(set(rank.machines)) == rank.size
        if config.machines is not None:
            rank.machines = made_up(config.machines, rank.size)
        result = main(config, rank, data)
        rank.control.barrier()  # nobody hangs up while another still listens
        return result
    except CollectiveError as error:
        raise rank.cause(error) from error
    except BaseException as error:
        known = isinstance(error, RunError | ConfigError)
        reason = str(error) if known else _unexpected(config, rank.rank, error)
        rank.store.compare_set(watchdog.CAUSE, "", reason)
        raise error if known else RunError(reason) from error


def made_up(machines: int, size: int) -> list[str]:
    """Neighbouring ranks on one machine, as many on each as on the next or one more."""
    return [f"machine-{number * machines // size}" for number in range(size)]


def _unexpected(config: Config, rank: int, error: BaseException) -> str:
    """One line about an error that nobody foresaw; its traceback goes into the run folder."""
    path = config.folder / f"error-rank-{rank}.txt"
    try:
        path.write_text("".join(traceback.format_exception(error)))
        where = f" (traceback in {path})"
    except OSError:
        where = ""
    return f"rank {rank}: {type(error).__name__}: {error}{where}"


def _own_gpus(store: dist.Store, place: Place, device: torch.device) -> bool:
    """Whether every rank has a GPU that no other rank has. All ranks get the same answer.

    By the GPUs' own numbers: SLURM may show a task one GPU only, which each of them then counts as the first.
    """
    own = f"{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else ""
    store.set(f"gpu/{place.rank}", own)
    everyone = [store.get(f"gpu/{number}") for number in range(place.size)]
    return all(everyone) and len(set(everyone)) == place.size


def _device(config: Config, place: Place) -> torch.device:
    if config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("device=cuda, but torch finds no GPU here; type device=cpu")
    return torch.device("cuda", place.local_rank % torch.cuda.device_count())


def _threads(config: Config, main: Main, share: Share, interrupt: Interrupt) -> Any:
    """Ranks as threads, each with a gloo group of its own on one store in memory: 32 of them start within a second."""
    store, data, size = dist.HashStore(), share(config), config.nodes
    places = [Place(number, size, number, size) for number in range(size)]
    at_once = max(1, len(os.sched_getaffinity(0)) // threads_each(config, size))
    together = Together(size, at_once) if len({_device(config, place) for place in places}) == 1 else None
    failures: list[BaseException] = []
    results: list[Any] = [None] * size

    def body(number: int) -> None:
        try:
            results[number] = run_rank(config, places[number], store, main, data, interrupt, together)
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


def _processes(config: Config, main: Main, share: Share, interrupt: Interrupt, switch: lab.Lab | None = None) -> Any:
    """Ranks as processes, forked from a server that has imported torch once and run nothing with it."""
    context = multiprocessing.get_context("forkserver")
    dynamo = ["torch._dynamo"] if config.algo.module == "ddp" else []  # which DDP imports when it is made: seconds
    context.set_forkserver_preload(["repro.training", "repro.ranks", *dynamo])
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    with tempfile.TemporaryDirectory(prefix="repro-") as folder:
        ranks = [
            context.Process(
                target=_process,
                args=(config, number, folder, store.port, main, share, switch),
                name=f"rank {number}",
            )
            for number in range(config.nodes)
        ]
        with preempt.shielded():  # until a rank listens, a signal for it waits
            for rank in ranks:
                rank.start()
        killed = _watch(ranks, interrupt)
        outcomes = [pickle.loads(path.read_bytes()) for path in sorted(Path(folder).glob("outcome-*"))]
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if killed:
        raise RunError(killed)
    if errors:
        raise errors[0]
    if len(outcomes) < config.nodes:
        raise RunError("the ranks were ended from outside before they were done; type the same command to go on")
    return outcomes[0]


def _watch(ranks: list[Any], interrupt: Interrupt) -> str | None:
    """Wait for all; when one dies the others get GRACE_S. Says which rank was killed from outside, if one was."""
    deadline, killed, told = None, None, False
    while alive := [rank for rank in ranks if rank.is_alive()]:
        multiprocessing.connection.wait([rank.sentinel for rank in alive], timeout=1.0)
        if interrupt.is_set() and not told:
            told = True
            for rank in alive:
                os.kill(rank.pid, signal.SIGUSR2)
        for rank in ranks:
            if rank.exitcode and deadline is None:
                deadline = time.monotonic() + GRACE_S
                killed = f"{rank.name} was killed by signal {-rank.exitcode}" if rank.exitcode < 0 else None
        if deadline is not None and time.monotonic() > deadline:
            for rank in alive:
                rank.kill()
    return killed


def _process(
    config: Config, number: int, folder: str, port: int, main: Main, share: Share, switch: lab.Lab | None
) -> None:
    outcome: Any
    try:
        store = dist.TCPStore("127.0.0.1", port, None, False, wait_for_workers=False)
        if switch is not None:
            lab.enter(switch, number)  # before any thread; the connection to the store stays outside
        parent = multiprocessing.parent_process()
        if parent is not None:  # killed outright, the launcher must not leave ranks behind that hold its run folder
            threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        place = Place(number, config.nodes, number, config.nodes)
        with preempt.listening() as interrupt:
            outcome = run_rank(config, place, store, main, share(config), interrupt)
    except BaseException as error:
        outcome = error if isinstance(error, RunError | ConfigError) else RunError(f"rank {number}: {error!r}")
    Path(folder, f"outcome-{number:06d}").write_bytes(pickle.dumps(outcome))
    if isinstance(outcome, BaseException):
        raise SystemExit(1)


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
