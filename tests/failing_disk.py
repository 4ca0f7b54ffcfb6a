"""A disk that fails at a chosen operation, under real files: the process ends there, or nothing new fits from there on.

It stands between Python and the system calls: buffers, flushes and closes behave as they do on a real disk.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

BLOCK = 4096  # bytes: a file may grow to the end of its last block on a full disk
ENDED = 86  # exit code of a process that ended at its operation
CALLS = ("replace", "rename", "mkdir", "unlink", "remove", "rmdir", "truncate", "utime", "symlink", "link")
_open, _os = io.open, {name: getattr(os, name) for name in (*CALLS, "fsync", "open")}


class Disk:
    """Counts the operations under `root`; `log` has their names. At `at` it fails as `fault` says.

    That is a number, from 0 on, or the name of an operation whose first one is meant: ranks that make the same folder
    at the same time make others' numbers differ.

    end: the process ends, in a write after half of it. full: this operation fails, and then all that need room.
    """

    def __init__(self, root: Path, fault: str, at: int | str, log: Path):
        self.root, self.fault, self.at = str(root.resolve()), fault, at
        self.count, self.passed = 0, False
        self.log = _os["open"](log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def install(self) -> None:
        builtins.open = io.open = self.open  # type: ignore[assignment]
        for name in CALLS:
            setattr(os, name, self.wrapped(name))
        os.fsync = self.fsync
        os.open = self.open_descriptor

    def within(self, path: Any, dir_fd: Any = None) -> bool:
        return isinstance(path, str | bytes | os.PathLike) and (
            dir_fd is not None or os.path.abspath(os.fsdecode(path)).startswith(self.root)
        )

    def reached(self, operation: str, path: Any) -> bool:
        """Counts an operation; returns whether it is the one that fails."""
        name = f"{operation} {kind(os.fsdecode(path))}"
        os.write(self.log, f"{name}\n".encode())
        now = not self.passed and self.at in (name, self.count)
        self.count, self.passed = self.count + 1, self.passed or now
        return now

    def fails(self, operation: str, path: Any, needs_room: bool) -> None:
        """Counts an operation that is done or not; ends or raises where it is to."""
        now = self.reached(operation, path)
        if now and self.fault == "end":
            os._exit(ENDED)
        if self.fault == "full" and (now or (needs_room and self.full)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fsdecode(path))

    @property
    def full(self) -> bool:
        return self.fault == "full" and self.passed

    def wrapped(self, name: str) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            if self.within(path, options.get("dir_fd")):
                self.fails(name, path, needs_room=name in ("mkdir", "symlink", "link"))
            return _os[name](path, *arguments, **options)

        return call

    def fsync(self, file: Any) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if self.within(path):
            self.fails("fsync", path, needs_room=False)

    def open_descriptor(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if self.within(path) and flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) and "dir_fd" not in options:
            self.fails("open", path, needs_room=not os.path.exists(path))
        return _os["open"](path, flags, *arguments, **options)

    def open(self, file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **options: Any) -> Any:
        if not self.within(file) or not set(mode) & set("wax+"):
            return _open(file, mode, buffering, *arguments, **options)
        self.fails("open", file, needs_room=not os.path.exists(file))
        raw = FailingFile(self, os.fspath(file), mode.replace("b", "").replace("t", ""))
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *arguments, **options)


class FailingFile(io.FileIO):
    def __init__(self, disk: Disk, path: str, mode: str):
        super().__init__(path, mode)
        self.disk, self.path = disk, path

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        now = self.disk.reached("write", self.path)
        if now and self.disk.fault == "end":
            super().write(view[: len(view) // 2])
            os._exit(ENDED)
        if self.disk.full:
            size = os.fstat(self.fileno()).st_size
            end = size if "a" in self.mode else self.tell()
            fits = -(-size // BLOCK) * BLOCK - end
            if len(view) > fits:
                if fits > 0:
                    return super().write(view[:fits]) or 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(view) or 0


def kind(path: str) -> str:
    """The name of a file without what differs from one place to another."""
    return re.sub(r"step-\d+", "step-N", re.sub(r"\.writable-\w+", ".writable", Path(path).name))


def in_child(work: Callable[[], int], disk: Disk | None, said: Path) -> int:
    """The exit code of `work` in a fork of this process, whose output goes to `said`, on that disk."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        torch.backends.mkldnn.set_flags(False)  # what oneDNN keeps of the convolutions before does not survive a fork
        signal.alarm(120)
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        sys.stdout, sys.stderr = (open(fd, "w", closefd=False, buffering=1) for fd in (1, 2))  # noqa: SIM115
        if disk is not None:
            disk.install()
        code = work()
    except BaseException:
        traceback.print_exc()
        code = 99
    os._exit(code)
