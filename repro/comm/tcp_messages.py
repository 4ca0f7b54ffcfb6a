"""Moves one message over a TCP connection: out as far as its buffer takes it, in with the moment of its last byte."""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch import Tensor

STAMPED = 35  # SO_TIMESTAMPNS: recvmsg says when the kernel got the last byte it returns; Python has no name for it
STAMP = struct.Struct("=qq")  # seconds and nanoseconds of the real-time clock
WAKE_BYTES = 1 << 18  # a receiver sleeps until so many bytes, or the rest of the message, have come
RANK = struct.Struct("=q")


class Outgoing:
    """A message that still has bytes to send. `sent_ns`: when the connection took the last one."""

    def __init__(self, wire: socket.socket, peer: int, header: bytes, x: Tensor):
        self.wire, self.peer = wire, peer
        self.left = [memoryview(header), _bytes(x.contiguous())]
        self.sent_ns = 0

    def some(self) -> bool:
        """Sends what the connection takes without waiting; returns whether nothing is left."""
        while self.left:
            try:
                sent = self.wire.sendmsg(self.left, [], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return False
            except OSError as error:
                raise RuntimeError(f"the connection to rank {self.peer} is gone ({error.strerror})") from None
            self.left = _after(self.left, sent)
            self.sent_ns = time.monotonic_ns()
        return True

    def all(self, timeout_s: float) -> None:
        while not self.some():
            _wait({self.wire: select.POLLOUT}, timeout_s)


class Incoming:
    """A message that still has bytes to come. `came_ns`: the moment of the last byte on the monotonic clock."""

    def __init__(self, wire: socket.socket, peer: int, header: int, into: Tensor):
        self.wire, self.peer, self.into, self.size = wire, peer, into, into.nbytes
        self.header = bytearray(header)
        self.whole = into if into.is_contiguous() else into.contiguous()
        self.left = [memoryview(self.header), _bytes(self.whole)]
        self.came_ns, self.wakes = 0, 0

    def some(self) -> bool:
        """Takes what has come, without waiting; returns whether the message is whole."""
        while self.left:
            try:
                got, extras, _, _ = self.wire.recvmsg_into(self.left, 64, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                raise RuntimeError(f"the connection to rank {self.peer} is gone ({error.strerror})") from None
            if not got:
                raise RuntimeError(f"the connection to rank {self.peer} was closed by it")
            self.left = _after(self.left, got)
            self.came_ns = time.monotonic_ns()
            for _, kind, stamp in extras:
                if kind == STAMPED and len(stamp) == STAMP.size:
                    seconds, ns = STAMP.unpack(stamp)
                    self.came_ns -= max(0, time.time_ns() - (1_000_000_000 * seconds + ns))
        if self.whole is not self.into:
            self.into.copy_(self.whole)
        return True

    def wake_at_enough(self) -> None:
        """Tells the kernel not to wake this thread for less than it still needs, within reason."""
        wanted = min(sum(map(len, self.left)), WAKE_BYTES)
        if wanted != self.wakes:
            self.wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self.wakes = wanted


def finish(incoming: Incoming, outgoing: Outgoing | None, timeout_s: float) -> int:
    """Ends both; returns when the last byte came in, in ns of the monotonic clock."""
    while True:
        out, come = outgoing is None or outgoing.some(), incoming.some()
        if out and come:
            return incoming.came_ns
        waits: dict[socket.socket, int] = {}
        if not come:
            incoming.wake_at_enough()
            waits[incoming.wire] = select.POLLIN
        if outgoing is not None and not out:
            waits[outgoing.wire] = waits.get(outgoing.wire, 0) | select.POLLOUT
        _wait(waits, timeout_s)


def connect_all(
    store: dist.Store, name: str, rank: int, size: int, address: str, timeout_s: float
) -> dict[int, socket.socket]:
    """Returns a connection to each other rank. A rank calls those before it, and is called by those behind it."""
    with socket.create_server((address, 0), backlog=size) as door:
        store.set(f"{name}/{rank}", str(door.getsockname()[1]))
        door.settimeout(timeout_s)
        store.set(f"{name}/address/{rank}", address)
        wires = {}
        for peer in range(rank):
            host, port = store.get(f"{name}/address/{peer}").decode(), int(store.get(f"{name}/{peer}"))
            wires[peer] = socket.create_connection((host, port), timeout_s)
            wires[peer].sendall(RANK.pack(rank))
        for _ in range(rank + 1, size):
            wire, _ = door.accept()
            wire.settimeout(timeout_s)
            (peer,) = RANK.unpack(wire.recv(RANK.size, socket.MSG_WAITALL))
            wires[peer] = wire
    for wire in wires.values():
        wire.setblocking(
            False
        )  # with a timeout Python waits in every call, and two ranks that swap much would never read
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.setsockopt(socket.SOL_SOCKET, STAMPED, 1)
    return wires


def _wait(events: dict[socket.socket, int], timeout_s: float) -> None:
    poll = select.poll()
    for wire, event in events.items():
        poll.register(wire, event)
    if not poll.poll(1e3 * timeout_s):
        raise RuntimeError(f"nothing came and nothing could be sent for {timeout_s:g} s")


def _after(views: list[memoryview], count: int) -> list[memoryview]:
    """Returns what is left of `views` behind the first `count` bytes."""
    while views and count >= len(views[0]):
        count -= len(views[0])
        views = views[1:]
    return [views[0][count:], *views[1:]] if views else []


def _bytes(x: Tensor) -> memoryview:
    import torch

    array: Any = x.detach().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)
