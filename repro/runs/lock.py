"""Gives a folder one owner at a time: `owner.json` names the process, its heartbeat shows that it lives.

A crash leaves the file behind. It is stale when its process is gone (same host, boot and container: at once, by
pid and start time), when its heartbeat has stopped (elsewhere: after STALE_S), or when an earlier start of this
very SLURM job left it (at once: SLURM ends one before it begins the next). The check and the take-over happen
under a file lock that the kernel drops with the process: two starters cannot both find the same owner stale.
An owner that was only stopped (SLURM's suspend), for longer than STALE_S, ends when it goes on and finds
another's name.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from repro.cluster import environment
from repro.config.schema import RunError
from repro.json_text import json_text
from repro.whole_files import write_whole

HEARTBEAT_S = 15.0
STALE_S = 120.0


class Held(RunError):
    """Another process works in the folder."""


class Lock:
    """Holds the folder from construction to `release`. Raises Held, which says who holds it and since when."""

    def __init__(self, folder: Path):
        self.file = folder / "owner.json"
        self.me = {**_this_process(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        folder.mkdir(parents=True, exist_ok=True)
        with _guarded(folder):
            owner = holder(folder)
            if owner is not None:
                job = f" (SLURM job {owner['job'].partition('.')[0]})" if owner.get("job") else ""
                raise Held(
                    f"{folder} is in use by process {owner['pid']} on {owner['host']}{job} "
                    f"since {owner['since']}; wait for it or end it"
                )
            write_whole(self.file, json_text(self.me))
        self.stopped = threading.Event()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def _beat(self) -> None:
        while not self.stopped.wait(HEARTBEAT_S):
            owner = _read(self.file)
            if owner not in (None, self.me) and not self.stopped.is_set():
                self._lost(owner)
            with suppress(OSError):
                os.utime(self.file)

    def _lost(self, owner: dict[str, Any]) -> None:
        """Ends the process at once: what it would still write is the other's by now."""
        new = f"process {owner['pid']}'s on {owner['host']} since {owner['since']}"
        why = f"this one gave no sign for {STALE_S:g} s: it was stopped, and ends here"
        print(f"repro: {self.file.parent} is {new}: {why}", file=sys.stderr, flush=True)
        os._exit(1)

    def release(self) -> None:
        """Gives the folder back. Where a full disk refuses that, the owner is stale once this process has ended."""
        self.stopped.set()
        with suppress(OSError), _guarded(self.file.parent):
            if _read(self.file) == self.me:
                self.file.unlink()


@contextmanager
def in_turn(folder: Path, wait_s: float = 60.0) -> Iterator[None]:
    """Holds the folder while inside; waits at most `wait_s` for its present holder. Raises Held."""
    end = time.monotonic() + wait_s
    while True:
        try:
            lock = Lock(folder)
            break
        except Held:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Waits until no other process is inside with this folder, in which nothing is written."""
    place = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def holder(folder: Path) -> dict[str, Any] | None:
    """Returns who holds the folder now, {pid, start, host, since}, or None. An owner that died does not count."""
    owner = _read(folder / "owner.json")
    if owner is None:
        return None
    if ended(owner.get("job"), environment.start()):
        alive = False
    elif owner["host"] == socket.gethostname() and owner.get("kernel", here := _kernel()) == here:
        alive = process_start(owner["pid"]) == owner["start"] or (_hidden(owner["pid"]) and _fresh(folder))
    else:
        alive = _fresh(folder)
    return owner if alive else None


def is_mine(owner: dict[str, Any]) -> bool:
    """Returns whether this process is the holder. In containers elsewhere others may have its number."""
    me = _this_process()
    return all(owner.get(name, me[name]) == me[name] for name in ("pid", "start", "host", "kernel"))


def ended(job: str | None, mine: str | None) -> bool:
    """Returns whether `job` ("ID.RESTARTS") is an earlier start of the job `mine`."""
    if job is None or mine is None:
        return False
    (its_id, its_start), (my_id, my_start) = job.rsplit(".", 1), mine.rsplit(".", 1)
    return its_id == my_id and int(its_start) < int(my_start)


def process_start(pid: int) -> str | None:
    """Returns when a process began, in the kernel's units: a reused pid has another start. None = it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
    try:  # no /proc (macOS): the pid alone
        os.kill(pid, 0)
        return ""
    except PermissionError:
        return ""
    except OSError:
        return None


def _hidden(pid: int) -> bool:
    """Returns whether a process is there of which /proc says nothing (hidepid): another user's."""
    if process_start(pid) is not None:
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _fresh(folder: Path) -> bool:
    """Returns whether the owner gave a sign of late; a living owner's date is never far in the future either."""
    return abs(_age(folder)) < STALE_S


def _kernel() -> str:
    """Returns what tells machines, and containers that see other processes, apart where they have one name; or ""."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _this_process() -> dict[str, Any]:
    return {
        "pid": os.getpid(), "start": process_start(os.getpid()), "host": socket.gethostname(),
        "kernel": _kernel(), "job": environment.start(), "step": environment.step(),
    }  # fmt: skip


@contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    with open(folder / ".owner.lock", "a") as guard:
        with suppress(OSError):  # a file system without locks: only two starts at one moment can collide
            fcntl.flock(guard, fcntl.LOCK_EX)
        yield


def _age(folder: Path) -> float:
    """Returns the seconds since the last heartbeat by the file system's clock, which all hosts share."""
    touched = folder / ".owner.lock"
    try:
        touched.touch()
        now = touched.stat().st_mtime
    except OSError:  # somebody else's folder, which this user may only read
        now = time.time()
    with suppress(OSError):
        return now - (folder / "owner.json").stat().st_mtime
    return STALE_S


def _read(file: Path) -> dict[str, Any] | None:
    """Returns the owner that the file names; None for a file that is none of ours."""
    try:
        owner = json.loads(file.read_text())
        known = isinstance(owner["pid"], int) and all(isinstance(owner[name], str) for name in ("host", "since"))
        job = owner.get("job")
        job_known = job is None or re.fullmatch(r".+\.\d+", job) is not None
        return owner if known and job_known and "start" in owner else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
