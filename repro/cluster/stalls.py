"""Tells slow, frozen, hanging and cut-off ranks apart by what a rank's process does, not by how long it takes.

- frozen: its heartbeat stopped, and on this machine its process used no processor time since. A heartbeat that a
  crowded machine delays comes from a process that still computes.
- hanging: it is in no collective while others wait for it, and its threads neither compute nor wait for a disk.
- cut off: everybody waits in a collective, and its address cannot be reached any more.

A rank that loads, evaluates, compiles or waits for its turn is slow: some thread of its process computes.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch.distributed as dist

LOOK_EVERY = 3  # beats
SILENT_BEATS = 20  # without a heartbeat, of a process on this machine that does nothing
DISTANT_BEATS = 40  # without a heartbeat, of one on another machine
STILL_BEATS = 30  # in no collective, doing nothing
TRY_AFTER_S = 10.0  # in one collective
TRY_S = 8.0  # for a connection to come about; a full lab link holds back as much for some seconds
MISSED = 2  # tries in a row
AGREED = 3  # looks in a row that find the same: the ranks try at different moments
FIRST_TRIES = 60  # beats after the start in which is found who can be reached at all
ASLEEP, DISK, TERMINAL, W_AND_B = "its work, asleep", "its disk", "its terminal", "W&B"
AT_WORK = (ASLEEP, DISK, TERMINAL, W_AND_B)  # what a rank waits for alone
# in a process that is not in state D: a file system in user space (FUSE), and Lustre's client
FILE_WAITS = ("request_wait_answer", "fuse_", "ptlrpc_", "cl_", "ll_")
LEAST_NS = 2_000_000  # of processor time within a beat that count as work


@dataclass(frozen=True)
class Position:
    """Says in which collective a rank is (None: in none), for how many seconds, and how many beats it has had.

    `still` says for how many beats it did nothing; `unreached` lists the ranks that did not answer it.
    """

    inside: str | None
    seconds: float
    beat: int
    still: int = 0
    pid: int = 0
    host: str = ""
    unreached: list[int] = field(default_factory=list)


def works(row: Position) -> bool:
    """Returns whether a rank does what ends by itself, whatever the others do."""
    return row.inside in AT_WORK or (row.inside is None and row.still == 0)


class Effort:
    """Tells whether the thread that made it does something. `still` is called once a beat, from another thread."""

    def __init__(self) -> None:
        self.own = threading.get_native_id()
        self.used: dict[int, int] = {}
        self.beats = 0

    def still(self, busy: bool) -> int:
        """Returns for how many beats neither the thread did anything nor others of its process for it."""
        self.beats = 0 if busy or self._works() else self.beats + 1
        return self.beats

    def _works(self) -> bool:
        """Looks at the rank's own thread first, then at those it may wait for: decoders, other ranks in their turn."""
        workers = (thread.native_id for thread in threading.enumerate() if not thread.daemon)
        return any(self._worked(one) for one in (self.own, *workers) if one is not None)

    def _worked(self, thread: int) -> bool:
        before, now = self.used.get(thread, 0), _processor_ns(Path(f"/proc/self/task/{thread}"))
        if now is None:  # no Linux: nothing is known; else another thread, which has ended
            return thread == self.own
        self.used[thread] = now
        return now - before > LEAST_NS or _waits_for_disk(thread)


class Others:
    """Keeps what one rank has seen of all ranks' heartbeats, from look to look."""

    def __init__(self, rank: int):
        self.rank, self.host = rank, socket.gethostname()
        self.last: dict[int, tuple[int, int | None]] = {}  # rank -> its beat, its processor time
        self.silent: Counter[int] = Counter()  # beats of this rank
        self.cut: list[set[tuple[int, int]]] = []

    def stalled(self, rows: list[Position | None]) -> str | None:
        """Returns which rank the others wait for in vain, and why; None where nobody does, as far as can be seen."""
        known = {rank: row for rank, row in enumerate(rows) if row is not None}
        waits = [rank for rank, row in known.items() if row.inside is not None]
        for rank, row in known.items():
            if rank != self.rank and self._silent(rank, row):
                return f"rank {rank} is frozen or gone: no heartbeat for {self.silent[rank]} s. {_waiting(known, rank)}"
        hangs = [rank for rank, row in known.items() if row.inside is None and row.still >= STILL_BEATS]
        if hangs and waits:
            names = ", ".join(f"{rank} (for {known[rank].seconds:.0f} s)" for rank in hangs)
            return f"rank {names} hangs: in no collective, and it does nothing. {_waiting(known, *hangs)}"
        everybody = len(waits) == len(rows)  # else some rank is busy, and may only be late to answer
        pairs = {(min(a, b), max(a, b)) for a, row in known.items() for b in row.unreached if everybody}
        self.cut = [*self.cut, pairs][-AGREED:]
        agreed = pairs and self.cut == [pairs] * AGREED
        return f"{cut_off(pairs)}. {_waiting(known)}" if agreed else None

    def _silent(self, rank: int, row: Position) -> bool:
        near = row.host == self.host
        used = _processor_ns(Path(f"/proc/{row.pid}")) if near else None
        quiet = self.last.get(rank) == (row.beat, used)
        self.silent[rank] = self.silent[rank] + LOOK_EVERY if quiet else 0
        self.last[rank] = row.beat, used
        return self.silent[rank] >= (SILENT_BEATS if near else DISTANT_BEATS)


def cut_off(pairs: set[tuple[int, int]]) -> str:
    """Returns who is behind the pairs of ranks that do not reach each other."""
    counts = Counter(rank for pair in pairs for rank in pair)
    most = max(counts.values())
    if most == 1:
        told = " and ".join(f"rank {a} and rank {b}" for a, b in sorted(pairs))
        return f"{told} do not reach each other: a link between them is cut"
    names = ", ".join(str(rank) for rank, count in sorted(counts.items()) if count == most)
    return f"rank {names} is cut off: {most} of the others do not reach it"


class Links:
    """Tests whether the other ranks' addresses can be reached: each listens, also one that is busy."""

    def __init__(self, store: dist.Store, rank: int, size: int, address: str):
        self.store, self.rank, self.size = store, rank, size
        self.door = socket.create_server((address, 0), backlog=4 * size)
        self.missed: Counter[int] = Counter()
        self.reached: set[int] = set()  # once, at least: a firewall is no cut
        self.calls = 0
        self.trying: threading.Thread | None = None
        store.set(f"link/{rank}", f"{address} {self.door.getsockname()[1]}")

    def unreached(self, seconds: float) -> list[int]:
        """Returns the ranks that did not answer several connection attempts in a row. Called once a beat.

        `seconds`: how long this rank has been in one collective; 0 in none.
        """
        self.calls += 1
        self._accept_all()  # a full backlog would make this rank look cut off
        if seconds < TRY_AFTER_S:
            self.missed.clear()
        early = self.calls < FIRST_TRIES and len(self.reached) < self.size - 1
        if (seconds >= TRY_AFTER_S or early) and not (self.trying and self.trying.is_alive()):
            self.trying = threading.Thread(target=self._try_all, daemon=True)
            self.trying.start()
        return sorted(rank for rank, count in list(self.missed.items()) if count >= MISSED and rank in self.reached)

    def _try_all(self) -> None:
        tries: dict[int, socket.socket] = {}
        for rank in range(self.size):
            if rank != self.rank and self.store.check([f"link/{rank}"]):
                address, port = self.store.get(f"link/{rank}").decode().split()
                tries[rank] = socket.socket()
                tries[rank].setblocking(False)
                tries[rank].connect_ex((address, int(port)))
        end = time.monotonic() + TRY_S
        while time.monotonic() < end and not all(_connected(wire) for wire in tries.values()):
            time.sleep(0.1)
        for rank, wire in tries.items():
            if _connected(wire):
                self.missed[rank] = 0
                self.reached.add(rank)
            else:
                self.missed[rank] += 1
            wire.close()

    def _accept_all(self) -> None:
        """Accepts and closes the connections of the other ranks' attempts."""
        self.door.setblocking(False)
        try:
            while True:
                self.door.accept()[0].close()
        except OSError:
            return


def _connected(wire: socket.socket) -> bool:
    try:
        wire.getpeername()
    except OSError:
        return False
    return True


def _waiting(known: dict[int, Position], *but: int) -> str:
    waits = [f"rank {rank} in {row.inside}" for rank, row in known.items() if row.inside and rank not in but]
    return f"Waiting: {'; '.join(waits) or 'nobody yet'}"


def _processor_ns(process: Path) -> int | None:
    """Returns the processor time of a process or of one of its threads, in ns; None where it is unknown."""
    try:
        if process.parent.name == "task":
            return int((process / "schedstat").read_text().split()[0])
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None


def _waits_for_disk(thread: int) -> bool:
    task = Path(f"/proc/self/task/{thread}")
    try:
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        return state == "D" or (state in "SI" and (task / "wchan").read_text().startswith(FILE_WAITS))
    except OSError:
        return False
