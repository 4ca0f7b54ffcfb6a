"""Makes network namespaces, which have neither name nor file: the kernel removes one with its last holder."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from repro.config.schema import ConfigError

USER, NETWORK = 0x10000000, 0x40000000  # the kernel's CLONE_NEWUSER and CLONE_NEWNET


@contextmanager
def made() -> Iterator[tuple[int, int | None]]:
    """Yields file descriptors of a fresh network namespace and, without root, of the user namespace around it.

    A child process makes them and ends once they are held here. It makes system calls only, as it may be
    forked from a process with threads.
    """
    ready, answers = os.pipe()
    wait, leave = os.pipe()
    uid, gid = os.geteuid(), os.getegid()
    child = os.fork()
    if child == 0:
        try:
            os.close(leave)
            os.write(answers, _make(uid, gid))
            os.read(wait, 1)
        finally:
            os._exit(0)
    os.close(answers)
    os.close(wait)
    held: list[int] = []
    try:
        answer = os.read(ready, 80).decode()
        if answer not in ("root", "user"):
            raise ConfigError(
                f"cluster=lab cannot make network namespaces here ({answer or 'no answer'}): be root, "
                "or allow user namespaces (sysctl user.max_user_namespaces), or type cluster=local"
            )
        for kind in ("net", "user")[: 1 if answer == "root" else 2]:
            held.append(os.open(f"/proc/{child}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC))
        os.close(leave)
        leave = -1
        os.waitpid(child, 0)
        yield held[0], held[1] if len(held) > 1 else None
    finally:
        if leave >= 0:
            os.close(leave)
            os.waitpid(child, 0)
        os.close(ready)
        for descriptor in held:
            os.close(descriptor)


def _make(uid: int, gid: int) -> bytes:
    """Enters new namespaces, in the child; returns as which user, or why it cannot."""
    try:
        with suppress(PermissionError):
            call("unshare", NETWORK)
            return b"root"
        call("unshare", USER | NETWORK)
        for file, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            Path(f"/proc/self/{file}").write_text(text)
        return b"user"
    except OSError as error:
        return str(error.strerror).encode()[:80]


def call(name: str, *arguments: int) -> None:
    """Makes a system call that Python has only from 3.12 on. Raises OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
