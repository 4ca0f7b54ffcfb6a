"""Carries messages over TCP connections of our own, and holds each message until a stated latency has passed.

The network of the lab has no latency of its own, and most kernels cannot add one. So a receiver waits: its call
returns when the last byte has come, plus the latency. The kernel stamps the last byte as it comes, so that a receiver
who was busy meanwhile waits only for what is left. The sender writes into a header when its link gets to the message;
the last byte counts as come no earlier than the link's rate allows from then on, whatever a full token bucket let
through at once. That is the sender's link: where several send to one node at once, its own link's token bucket alone
holds them, which lets its first bytes through. All processes of a machine read one clock.

Ranks that share cores are woken late, all of them at the end of each round. That is this machine's time, not the
network's: a rank that was woken late goes on with the clock of when it should have been woken, and of what a message
comes later than its link allows, a little (ABSORBED_S) counts as lateness of this machine. What is more shows.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from repro.comm.tcp_messages import Incoming, Outgoing, connect_all, finish

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch import Tensor

    from repro.comm.transport import GroupTransport

HEADER = struct.Struct("=qq")  # ns at which the link of the sender gets to the message; its bytes
PAYLOAD, FRAME = 1448, 66  # bytes of a full segment, and of the headers around it
LATE = 100  # a message is late by more than this part of its time on the line: acknowledgements share the link
ABSORBED_S = 2e-3  # of this machine's time, and at most half of the latency


@dataclass(frozen=True)
class Pace:
    """What a message takes on a link: `latency_s`, and its bytes at `bits_per_s`, headers included."""

    latency_s: float
    bits_per_s: float

    def line_ns(self, size: int) -> int:
        """Returns how long the link is busy with a message of `size` bytes."""
        return int(8e9 * (size + FRAME * max(1, -(-size // PAYLOAD))) / self.bits_per_s)


class Clock:
    """A rank's monotonic clock in ns, as it would be if the rank had been woken on time whenever it slept."""

    late_ns = 0  # how late it was woken last

    def now_ns(self) -> int:
        return time.monotonic_ns() - self.late_ns

    def sleep_until(self, moment_ns: int, since_ns: int | None = None) -> None:
        """Sleeps unless the moment had passed at `since_ns`, or now: who has been busy until then is not late."""
        if moment_ns <= (self.now_ns() if since_ns is None else since_ns):
            return
        while (left := moment_ns - time.monotonic_ns()) > 0:
            time.sleep(left * 1e-9)
        self.late_ns = time.monotonic_ns() - moment_ns


class SocketTransport:
    """Sends over one TCP connection per pair of ranks. With a `pace` it holds what it receives."""

    segments, header = 1, HEADER.size  # each round of `all_reduce` is one message

    def __init__(self, wires: dict[int, socket.socket], rank: int, size: int, pace: Pace | None, timeout_s: float):
        self.wires, self.rank, self.size, self.pace, self.timeout_s = wires, rank, size, pace, timeout_s
        latency_s = 0.0 if pace is None else pace.latency_s
        self.hold_ns = int(1e9 * latency_s)
        self.absorbed_ns = int(1e9 * min(ABSORBED_S, latency_s / 2))
        self.free_ns = 0  # when the link has sent what it was given so far
        self.clock = Clock()
        self.held, self.late = 0, 0  # messages, and those that came later than ABSORBED_S makes up for
        self.rejoin: Any = None  # (store, address), to join the same ranks again
        self.asides: list[SocketTransport] = []
        self.gloo: GroupTransport | None = None

    def unheld(self) -> SocketTransport:
        """Returns the same connections without latency, for control. One thread uses both."""
        twin = SocketTransport(self.wires, self.rank, self.size, None, self.timeout_s)
        twin.clock = self.clock
        return twin

    def counts(self) -> tuple[int, int]:
        """Returns how many messages were held since the last call, and how many of them came late."""
        counts, self.held, self.late = (self.held, self.late), 0, 0
        return counts

    def send(self, x: Tensor, peer: int) -> None:
        """Returns when the link has carried the message; else the next one, to another rank, would share the link."""
        self._outgoing(x, peer).all(self.timeout_s)
        self.clock.sleep_until(self.free_ns)

    def recv(self, into: Tensor, peer: int) -> None:
        self._held(Incoming(self.wires[peer], peer, HEADER.size, into), None)

    def exchange(self, x: Tensor, to: int, into: Tensor, source: int) -> None:
        """Returns when both messages have ended: its own as in `send`."""
        outgoing = self._outgoing(x, to)
        self._held(Incoming(self.wires[source], source, HEADER.size, into), outgoing)
        self.clock.sleep_until(self.free_ns)

    def all_reduce(self, x: Tensor) -> None:
        """Sums over a ring, round by round: P - 1 rounds add chunks of |x| / P, and P - 1 hand on the sums."""
        flat = x.contiguous().view(-1)
        chunk = -(-flat.numel() // self.size)
        chunks = [flat[i * chunk : (i + 1) * chunk] for i in range(self.size)]
        right, left, came = (self.rank + 1) % self.size, (self.rank - 1) % self.size, torch.empty_like(flat[:chunk])
        for done in range(self.size - 1):
            into = chunks[(self.rank - done - 1) % self.size]
            self.exchange(chunks[(self.rank - done) % self.size], right, came[: into.numel()], left)
            into += came[: into.numel()]
        for done in range(self.size - 1):
            into = chunks[(self.rank - done) % self.size]
            self.exchange(chunks[(self.rank - done + 1) % self.size], right, into, left)
        if flat.data_ptr() != x.data_ptr():
            x.copy_(flat.view(x.shape))

    def aside(self) -> SocketTransport:
        store, address = self.rejoin
        other = join(store, self.rank, self.size, address, self.timeout_s, self.pace, f"aside-{len(self.asides)}")
        self.asides.append(other)
        return other

    def group_transport(self) -> GroupTransport:
        """Returns a gloo group of the same ranks, for PyTorch's DDP. What it sends cannot be held."""
        if self.gloo is None:
            import torch.distributed as dist

            from repro.comm.transport import gloo

            store, _ = self.rejoin
            self.gloo = gloo(dist.PrefixStore("gloo", store), self.rank, self.size, self.timeout_s)
        return self.gloo

    def close(self) -> None:
        """Drops the connections: ranks still waiting for this one fail at once."""
        for other in self.asides:
            other.close()
        if self.gloo is not None:
            self.gloo.close()
        for wire in self.wires.values():
            wire.close()

    def _outgoing(self, x: Tensor, peer: int) -> Outgoing:
        begins = self.clock.now_ns()
        if self.pace is not None:
            begins = max(begins, self.free_ns)
            self.free_ns = begins + self.pace.line_ns(x.nbytes)
        return Outgoing(self.wires[peer], peer, HEADER.pack(begins, x.nbytes), x)

    def _held(self, incoming: Incoming, outgoing: Outgoing | None) -> None:
        """Receives while it sends, and waits until the latency has passed."""
        asked = self.clock.now_ns()
        came_ns = finish(incoming, outgoing, self.timeout_s)
        begins, size = HEADER.unpack(incoming.header)
        if size != incoming.size:
            raise RuntimeError(f"expected {incoming.size} bytes, and rank {incoming.peer} sent {size}")
        if self.pace is not None:
            earliest = begins + self.pace.line_ns(size)
            there = max(came_ns - self.absorbed_ns, earliest) + self.hold_ns
            if outgoing is not None:  # it blocks if it is large and its receiver late: that is no machine's time
                there = max(there, outgoing.sent_ns - self.clock.late_ns - self.absorbed_ns)
            self.held += 1
            self.late += came_ns - self.absorbed_ns > earliest + self.pace.line_ns(size) // LATE
            self.clock.sleep_until(there, asked)


def join(
    store: dist.Store, rank: int, size: int, address: str, timeout_s: float, pace: Pace | None, name: str = "wires"
) -> SocketTransport:
    """Connects every two ranks. Every rank must call this with the same `store`; `address` is its own."""
    wires = connect_all(store, name, rank, size, address, timeout_s)
    transport = SocketTransport(wires, rank, size, pace, timeout_s)
    transport.rejoin = store, address
    return transport
