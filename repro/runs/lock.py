"""One owner at a time for a folder: `owner.json` names the process, its heartbeat says that it lives.

A crash leaves the file behind. It is stale when its process is gone (same host: at once, by pid and start
time), when its heartbeat has stopped (another host: after STALE_S), or when an earlier start of this very
SLURM job left it (at once: SLURM ends one before it begins the next). The check and the take-over happen
under a file lock that the kernel drops with the process: two starters cannot both find the same owner stale.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from repro import environment
from repro.schema import RunError

HEARTBEAT_S = 15.0
STALE_S = 120.0


class Held(RunError):
    """Somebody else works in the folder."""


class Lock:
    """Held from construction to `release`. Raises Held, with who holds it and since when."""

    def __init__(self, folder: Path):
        self.file = folder / "owner.json"
        self.me = {**_this_process(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            owner = holder(folder)
            if owner is not None:
                job = f" (SLURM job {owner['job'].partition('.')[0]})" if owner.get("job") else ""
                raise Held(
                    f"{folder} is in use by process {owner['pid']} on {owner['host']}{job} "
                    f"since {owner['since']}; wait for it or end it"
                )
            _write(self.file, self.me)
        self.stopped = threading.Event()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def _beat(self) -> None:
        while not self.stopped.wait(HEARTBEAT_S):
            with suppress(OSError):
                os.utime(self.file)

    def release(self) -> None:
        self.stopped.set()
        with _alone(self.file.parent):
            if _read(self.file) == self.me:
                self.file.unlink()


def holder(folder: Path) -> dict[str, Any] | None:
    """Who holds the folder now: {pid, start, host, since}, or None. An owner that died does not count."""
    owner = _read(folder / "owner.json")
    if owner is None:
        return None
    if ended(owner.get("job"), environment.start()):
        alive = False
    elif owner["host"] == socket.gethostname():
        alive = process_start(owner["pid"]) == owner["start"]
    else:
        alive = _age(folder) < STALE_S
    return owner if alive else None


def ended(job: str | None, mine: str | None) -> bool:
    """Whether `job` ("ID.RESTARTS") is an earlier start of the job `mine`."""
    if job is None or mine is None:
        return False
    (its, start), (own, now) = job.rsplit(".", 1), mine.rsplit(".", 1)
    return its == own and int(start) < int(now)


def process_start(pid: int) -> str | None:
    """When a process began, in the kernel's terms: a pid used again is another process. None = it is gone."""
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


def _this_process() -> dict[str, Any]:
    return {
        "pid": os.getpid(), "start": process_start(os.getpid()), "host": socket.gethostname(),
        "job": environment.start(),
    }  # fmt: skip


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with open(folder / ".owner.lock", "a") as guard:
        with suppress(OSError):  # a file system without locks: only the tiny window of two starts is left open
            fcntl.flock(guard, fcntl.LOCK_EX)
        yield


def _age(folder: Path) -> float:
    """Seconds since the last heartbeat by the file system's clock: hosts share it, their own may differ."""
    probe = folder / ".owner.lock"
    probe.touch()
    with suppress(OSError):
        return probe.stat().st_mtime - (folder / "owner.json").stat().st_mtime
    return STALE_S


def _write(file: Path, owner: dict[str, Any]) -> None:
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(owner))
    unfinished.replace(file)


def _read(file: Path) -> dict[str, Any] | None:
    try:
        owner = json.loads(file.read_text())
        return owner if {"pid", "start", "host", "since"} <= owner.keys() else None
    except (OSError, ValueError, AttributeError):
        return None
