"""Bytes at the sockets of this process, by the kernel's own count."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import thread_ranks

from repro.comm.collective import Collective

needs_tcp_info = pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the kernel's count is Linux's")


def received(but: int = -1) -> int:
    """Over all TCP sockets of this process but those to port `but`, headers of gloo's included, those of TCP not."""
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink() and os.readlink(entry).startswith("socket:"):
            with socket.socket(fileno=os.dup(int(entry.name))) as end:
                if end.family in (socket.AF_INET, socket.AF_INET6) and _peer(end) != but:
                    total += of_one(end)
    return total


def of_one(end: socket.socket) -> int:
    info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int.from_bytes(info[128:136], "little")  # tcpi_bytes_received


def _peer(end: socket.socket) -> int:
    """Returns the port at the other end, 0 where there is none."""
    try:
        return int(end.getpeername()[1])
    except OSError:
        return 0


def of(size: int, body: Callable[[Collective], Any]) -> tuple[list[Any], int]:
    """What `body` returns on each of `size` ranks over gloo, and the bytes that its messages were at the sockets."""

    def nothing(collective: Collective) -> None:
        pass

    thread_ranks.on_ranks(size, nothing, over="gloo")  # connects
    start = received()
    thread_ranks.on_ranks(size, nothing, over="gloo")
    barrier, start = received() - start, received()
    results = thread_ranks.on_ranks(size, body, over="gloo")
    return results, received() - start - barrier
