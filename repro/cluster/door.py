"""Leads the ranks of one start to their store: rank 0 opens a door where the others knock.

A TCPStore needs one port that all know before, which another program may hold; a door may be on any of several.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from repro.cluster.environment import Place
from repro.config.schema import RunError

if TYPE_CHECKING:
    import torch.distributed as dist


def store(place: Place, timeout_s: float) -> dist.Store:
    """Connects to the store of this start and returns it; waits at most `timeout_s` for rank 0."""
    import torch.distributed as dist

    wait = timedelta(seconds=timeout_s)
    if not place.token:  # torchrun has a store of its own
        return next(dist.rendezvous("env://", timeout=wait))[0]
    if place.rank == 0:
        listener = _listen(0)  # any free port; the door tells it to the others
        port = listener.getsockname()[1]
        store = dist.TCPStore(place.host, port, None, True, wait, False, master_listen_fd=listener.detach())
        open_door(place, port, timeout_s)
        return store
    return dist.TCPStore(place.host, knock(place, timeout_s), None, False, wait, False)


def open_door(place: Place, store_port: int, timeout_s: float) -> int:
    """Answers the other ranks' knocks with `store_port`, on rank 0. Returns the port of the door.

    The door is a thread that listens on the first free port of `place.ports`, so a taken port does no harm. It
    closes when every rank has come, or after `timeout_s`.
    """
    for port in place.ports:
        try:
            door = _listen(port)
        except OSError:
            continue
        arguments = (door, place, store_port, timeout_s)
        threading.Thread(target=_answer, args=arguments, name="door", daemon=True).start()
        return port
    taken = _listed(place.ports)
    raise RunError(f"none of the ports {taken} is free on {place.host}: submit the job again")


def knock(place: Place, timeout_s: float) -> int:
    """Returns the store's port, on another rank, once rank 0 of this very start answers on one of the ports."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        for port in place.ports:
            # suppress: nobody listens, or a program with another protocol
            with suppress(OSError, ValueError), socket.create_connection((place.host, port), timeout=2) as wire:
                wire.sendall(f"{place.token} {place.rank}\n".encode())
                token, answer = wire.makefile().readline(200).rsplit(maxsplit=1)
                if token == place.token:
                    wire.sendall(b"heard\n")
                    return int(answer)
        time.sleep(0.2)
    raise RunError(
        f"rank {place.rank} did not find rank 0 on {place.host}, ports {_listed(place.ports)}, within "
        f"{timeout_s:g} s: look in the log for rank 0's error, and for a firewall between the machines"
    )


def _answer(door: socket.socket, place: Place, store_port: int, timeout_s: float) -> None:
    missing, end = set(range(1, place.size)), time.monotonic() + timeout_s
    with door:
        while missing and time.monotonic() < end:
            door.settimeout(max(0.1, end - time.monotonic()))
            # A stranger (another job's rank, a scanner) gets no answer.
            with suppress(OSError, ValueError), door.accept()[0] as wire, wire.makefile() as lines:
                wire.settimeout(2)
                token, rank = lines.readline(200).rsplit(maxsplit=1)
                if token == place.token:
                    wire.sendall(f"{token} {store_port}\n".encode())
                    if lines.readline(200):  # else it gave up before it was its turn, and will knock again
                        missing.discard(int(rank))


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
