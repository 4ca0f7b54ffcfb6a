"""Runs P ranks as threads of this process, as processes of this machine, or as what torchrun or srun started."""

from __future__ import annotations

import multiprocessing
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from repro.cluster import dilation, environment, lab, limits, memory, processes, stalls, start, threads, watchdog
from repro.cluster.devices import device_of, own_gpus, own_stream, take
from repro.cluster.environment import Place, find_place
from repro.cluster.preempt import Interrupt
from repro.comm import sockets, transport
from repro.comm.collective import Collective, CollectiveError
from repro.comm.sockets import Clock, Pace, SocketTransport
from repro.config.schema import Config, ConfigError, RunError
from repro.whole_files import FULL, explain


@dataclass
class Rank:
    """One of P ranks, with its connections to the others."""

    collective: Collective  # the gradient's traffic: counted
    control: Collective  # agreement, comparison, evaluation: not counted
    device: torch.device
    own_machine: bool  # it has its machine (or its GPU) to itself, so that its clock is a node's clock
    store: dist.Store  # not for gradients: where each rank is, and what failed
    machines: list[str] = field(default_factory=list)  # the machine of every rank
    interrupt: Interrupt = field(default_factory=Interrupt)  # set: save and stop at the next agreement
    turns: AbstractContextManager[object] = field(default_factory=nullcontext)  # held while it computes
    dilation: float = 1.0  # seconds of this lab that stand for one of the network's
    clock: Clock = field(default_factory=Clock)
    parts: list[Collective] = field(default_factory=list)  # of some of the ranks, on the same wires
    waiting: tuple[str, float] | None = None  # for what, outside of a Collective, and since when

    def cause(self, error: CollectiveError) -> RunError:
        """Returns what to report for a failed collective: the error of the rank that failed first, or who is gone."""
        return RunError(watchdog.explain(self.store, self.number, self.size, str(error)))

    def position(self) -> tuple[str | None, float]:
        """Returns the collective it is in (None: in none; `waits` counts as one), and since when (perf_counter)."""
        waiting = self.waiting  # once: the rank may go on meanwhile
        if waiting is not None:
            return waiting
        ways = [each.position for each in (self.collective, self.collective.other, self.control, *self.parts) if each]
        inside = next((inside for inside, _ in ways if inside), None)
        return inside, max(since for _, since in ways)

    def sleep_until(self, moment: float) -> None:
        """Sleeps in place of work until `moment` of `now`."""
        with self.waits(stalls.ASLEEP):
            self.clock.sleep_until(int(1e9 * moment))

    @contextmanager
    def waits(self, what: str) -> Iterator[None]:
        """Says that this rank waits outside of a Collective, so that the others do not take it for one that hangs."""
        before, self.waiting = self.waiting, (what, time.perf_counter())
        try:
            yield
        finally:
            self.waiting = before

    def now(self) -> float:
        """Returns time.monotonic() as it would be if this rank had been woken on time."""
        return 1e-9 * self.clock.now_ns()

    @property
    def number(self) -> int:
        return self.collective.rank

    @property
    def size(self) -> int:
        return self.collective.size


Share = Callable[[Config], Any]
Main = Callable[[Config, Rank, Any], Any]
Failed = Callable[[str], None]


def launch(
    config: Config,
    main: Main,
    share: Share,
    interrupt: Interrupt | None = None,
    failed: Failed | None = None,
) -> Any:
    """Runs `main(config, rank, share(config))` on every rank.

    Returns what rank 0 returned; in a process that torchrun or srun started, what its own rank returned.

    Setting `interrupt` asks every rank to save and stop. `share` is called once in each process. A rank that
    has to end its process tells `failed` the reason.
    Raises RunError with the error of the rank that failed first.
    """
    place, interrupt = find_place(config), interrupt or Interrupt()
    if place is not None:
        limits.lift("RLIMIT_NOFILE")  # SLURM gives its tasks the soft one of who submitted
        store = start.meet(config, place, config.timeout_s)
        with start.kept(store, place):
            data = start.load(config, place, store, share)
            return run_rank(config, place, store, main, data, interrupt, failed=failed)
    limits.check(config)
    memory.check(config)
    if threads.as_threads(config):
        return threads.launch(config, run_rank, main, share, interrupt, failed)
    if config.cluster.name == "lab":
        return _in_lab(config, main, share, interrupt)
    return processes.launch(config, run_rank, main, share, interrupt)


def _in_lab(config: Config, main: Main, share: Share, interrupt: Interrupt) -> Any:
    slow = dilation.resolve(config, lambda trial, its_main: _in_lab(trial, its_main, no_data, interrupt))
    delay_s, held = config.cluster.options["delay_s"], config.cluster.held
    with lab.lab(config.network.bits_per_s, delay_s, slow, held) as switch:
        return processes.launch(config, run_rank, main, share, interrupt, switch)


def no_data(config: Config) -> None:
    """Loads nothing: for ranks that only measure."""


def with_rank_0(config: Config) -> bool:
    """Returns whether this is the process of rank 0, which shows what all wait for. Raises ConfigError."""
    place = find_place(config)
    if place is not None:
        return place.rank == 0
    return threads.as_threads(config) or multiprocessing.current_process().name == "rank 0"


def run_rank(
    config: Config,
    place: Place,
    store: dist.Store,
    main: Main,
    data: Any,
    interrupt: Interrupt,
    turns: AbstractContextManager[object] | None = None,
    address: str = "",
    failed: Failed | None = None,
    switch: lab.Lab | None = None,
    wires: transport.Wires | None = None,
) -> Any:
    """Joins the others as one rank and runs `main`. The first rank to fail leaves its error in the store for all."""
    outside = find_place(config) is not None  # started by torchrun or srun, at any time
    rank: Rank | None = None
    wire: transport.GroupTransport | transport.MemoryTransport | SocketTransport | None = None
    began = time.perf_counter()

    def position() -> tuple[str | None, float]:
        return (watchdog.START, began) if rank is None else rank.position()

    def last_words(reason: str) -> None:
        if config.cluster.forks and not outside:
            return  # the launcher reports it
        if failed is not None:
            failed(reason)
        print(f"repro: {reason}", file=sys.stderr, flush=True)

    torch.set_num_threads(threads.of_each(config, place.local_size))
    memory.keep_freed()
    if outside:
        address = environment.own_address()
    try:
        with watchdog.watched(store, place.rank, place.size, position, last_words, outside, config.timeout_s, address):
            try:
                device = device_of(config, place)
                take(device)
                patience_s = config.timeout_s if outside else watchdog.START_S
                start.assemble(store, place.rank, place.size, patience_s, interrupt)
                own_gpu = own_gpus(store, place, device)
                if switch is not None and switch.held:
                    pace = Pace(switch.dilation * config.network.alpha_s, switch.line_bits_per_s)
                    wire = sockets.join(store, place.rank, place.size, address, transport.NEVER_S, pace)
                elif wires is not None:
                    own_stream(device)
                    wire = transport.MemoryTransport(place.rank, wires)
                else:
                    wire = _join(config, place, store, device if own_gpu else None)
            except (ConfigError, KeyboardInterrupt) as error:
                start.failed(store, place.rank, error)
                raise
            except BaseException as error:
                raise start.failed(store, place.rank, error) from error
            control = Collective(wire.unheld() if isinstance(wire, SocketTransport) else wire)
            rank = Rank(Collective(wire), control, device, own_gpu, store, [], interrupt, turns or nullcontext())
            rank.dilation = 1.0 if switch is None else switch.dilation
            rank.clock = wire.clock if isinstance(wire, SocketTransport) else rank.clock
            return _run_rank(config, rank, main, data)
    finally:
        if wire is not None:
            wire.close()


def _join(config: Config, place: Place, store: dist.Store, gpu: torch.device | None) -> transport.GroupTransport:
    if gpu is not None:
        return transport.nccl(store, place.rank, place.size, transport.NEVER_S, gpu)
    try:
        return transport.gloo(store, place.rank, place.size, transport.NEVER_S)
    except RuntimeError as error:
        if "[127." in str(error) and find_place(config) is not None:
            raise RunError(
                f"{error}. Where machines' names lead to 127.0.1.1 on themselves, export GLOO_SOCKET_IFNAME=INTERFACE "
                "(docs/slurm.md)"
            ) from error
        raise


def _run_rank(config: Config, rank: Rank, main: Main, data: Any) -> Any:
    try:
        rank.machines = rank.control.gather_objects(socket.gethostname())
        rank.own_machine = rank.own_machine or len(set(rank.machines)) == rank.size
        if config.machines is not None:
            rank.machines = made_up(config.machines, rank.size)
        result = main(config, rank, data)
        # No rank disconnects while another still receives, and all learn alike whether to begin a next run.
        told = rank.control.all_reduce(torch.tensor([float(rank.interrupt.is_set())]))
        rank.interrupt.agreed = bool(told.item())
        return result
    except CollectiveError as error:
        raise rank.cause(error) from error
    except KeyboardInterrupt:  # a second Ctrl-C, where a launcher started this process
        rank.store.compare_set(watchdog.CAUSE, "", f"rank {rank.number} was stopped at once by a second Ctrl-C")
        raise
    except BaseException as error:
        known = isinstance(error, RunError | ConfigError)
        if isinstance(error, OSError) and error.errno in FULL:
            reason = explain(error)
        else:
            reason = str(error) if known else _unexpected(config, rank.number, error)
        rank.store.compare_set(watchdog.CAUSE, "", reason)
        if known:
            raise
        raise RunError(reason) from error


def made_up(machines: int, size: int) -> list[str]:
    """Puts neighbouring ranks on one machine; the numbers of ranks on two machines differ by one at most."""
    return [f"machine-{number * machines // size}" for number in range(size)]


def _unexpected(config: Config, rank: int, error: BaseException) -> str:
    """Returns one line about an unforeseen error; writes its traceback into the run folder."""
    path = config.folder / f"error-rank-{rank}.txt"
    try:
        path.write_text("".join(traceback.format_exception(error)))
        where = f" (traceback in {path})"
    except OSError:
        where = ""
    return f"rank {rank}: {type(error).__name__}: {error}{where}"
