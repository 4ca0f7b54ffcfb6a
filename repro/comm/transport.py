"""Transports carry a Collective's messages: a torch.distributed process group, or plain memory between threads."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor

from repro.clock import finish_stream
from repro.comm.traffic import HEADERS_BYTES, SEGMENT_BYTES

NEVER_S = 7 * 86400.0  # poll takes 24 days; a watchdog looks after the run: it counts beats, gloo the time of a clock


class GroupTransport:
    """Gives each rank its own torch.distributed process group object, so that ranks may be threads or processes.

    Gloo moves CPU memory: a CUDA tensor passes through pinned CPU buffers. NCCL needs one GPU per rank.
    """

    segments, header = 0, HEADERS_BYTES  # gloo's, also where NCCL carries them, whose own nobody counts

    def __init__(
        self,
        group: dist.ProcessGroup,
        device: torch.device | None = None,
        again: Callable[[int], GroupTransport] | None = None,
    ):
        """`again(number)` joins the same ranks in one more group."""
        self.group, self.rank, self.size = group, group.rank(), group.size()
        self.again, self.asides = again, list[GroupTransport]()
        self.device = device or torch.device("cpu")  # where send and receive buffers live

    def send(self, x: Tensor, peer: int) -> None:
        outgoing = self._wire(x)
        self._wait(lambda: self.group.send([outgoing], peer, 0))

    def recv(self, into: Tensor, peer: int) -> None:
        buffer = self._wire(into, copy=False)
        self._wait(lambda: self.group.recv([buffer], peer, 0))
        self._unwire(buffer, into)

    def exchange(self, x: Tensor, to: int, into: Tensor, source: int) -> None:
        outgoing, buffer = self._wire(x), self._wire(into, copy=False)
        self._wait(lambda: self.group.recv([buffer], source, 0), lambda: self.group.send([outgoing], to, 0))
        self._unwire(buffer, into)

    def _wait(self, *messages: Callable[[], dist.Work]) -> None:
        """Begins the messages, and waits for all of them.

        NCCL runs both directions at once only as one group of calls. A message alone is a group, too: otherwise it
        would take other wires than a group's, to which its other end may belong.
        """
        if self.device.type == "cuda":
            with self.coalesced():
                for message in messages:
                    message()
        else:
            for work in [message() for message in messages]:
                work.wait()

    @contextmanager
    def coalesced(self) -> Iterator[None]:
        """Makes one group of the calls inside, and waits for it."""
        # a ProcessGroup asks which of its backends is meant; a backend alone, as `nccl` makes, takes no argument
        on = (self.device,) if isinstance(self.group, dist.ProcessGroup) else ()
        self.group._start_coalescing(*on)
        yield
        self.group._end_coalescing(*on).wait()

    def all_reduce(self, x: Tensor) -> None:
        buffer = self._wire(x)
        self.group.allreduce([buffer]).wait()
        self._unwire(buffer, x)

    def aside(self) -> GroupTransport:
        if self.again is None:
            raise RuntimeError("this group cannot be joined once more")
        self.asides.append(self.again(len(self.asides)))
        return self.asides[-1]

    def close(self) -> None:
        """Drops the connections: ranks still waiting for this one fail at once instead of at their timeout."""
        for other in self.asides:
            other.close()
        self.group.abort()
        del self.group  # gloo closes its sockets only with the group itself

    def _wire(self, x: Tensor, copy: bool = True) -> Tensor:
        if x.device.type == self.device.type:
            return x if x.is_contiguous() else x.contiguous()
        if self.device.type == "cuda":
            return x.to(self.device)
        buffer = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        return buffer.copy_(x) if copy else buffer

    @staticmethod
    def _unwire(buffer: Tensor, x: Tensor) -> None:
        if buffer.data_ptr() != x.data_ptr():
            x.copy_(buffer)


def gloo(store: dist.Store, rank: int, size: int, timeout_s: float) -> GroupTransport:
    """Joins `size` ranks over gloo. Every rank must call this with the same `store`."""
    group = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=timeout_s))

    def again(number: int) -> GroupTransport:
        return gloo(dist.PrefixStore(f"aside-{number}", store), rank, size, timeout_s)

    return GroupTransport(cast(dist.ProcessGroup, group), again=again)


def nccl(store: dist.Store, rank: int, size: int, timeout_s: float, device: torch.device) -> GroupTransport:
    """Joins the ranks over NCCL, with one GPU (`device`) per rank."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=timeout_s)
    torch.cuda.set_device(device)
    group = dist.ProcessGroupNCCL(store, rank, size, options)

    def again(number: int) -> GroupTransport:
        return nccl(dist.PrefixStore(f"aside-{number}", store), rank, size, timeout_s, device)

    return GroupTransport(cast(dist.ProcessGroup, group), device, again)


class MemoryTransport:
    """Passes tensors in memory between ranks that are threads: real messages without torch.distributed.

    On a GPU they stay there. Each rank waits for its own stream before it hands a copy over, and before it lets go of
    one: ranks may use unlike streams, and the memory of a copy serves its sender's stream again.
    """

    segments, header = 0, HEADERS_BYTES  # counted as if gloo carried them

    def __init__(self, rank: int, wires: Wires):
        self.rank, self.size, self.wires = rank, wires.size, wires
        self.asides = 0

    def send(self, x: Tensor, peer: int) -> None:
        copy = x.clone()
        finish_stream()
        self.wires.box(self.rank, peer).put(copy)

    def recv(self, into: Tensor, peer: int) -> None:
        received = self.wires.take(peer, self.rank)
        into.copy_(received)
        finish_stream()

    def exchange(self, x: Tensor, to: int, into: Tensor, source: int) -> None:
        self.send(x, to)
        self.recv(into, source)

    def all_reduce(self, x: Tensor) -> None:
        """Sums on rank 0 in one order, so that bits do not depend on which thread runs first: on the CPU in gloo's."""
        if not x.is_cuda:
            self._ring_sum(x)
        elif self.rank:
            self.send(x, 0)
            self.recv(x, 0)
        else:
            for peer in range(1, self.size):
                received = self.wires.take(peer, 0)
                x += received
                finish_stream()
            for peer in range(1, self.size):
                self.send(x, peer)

    def _ring_sum(self, x: Tensor) -> None:
        """Sums without copies: a rank lends its own tensor, as it waits for the sum until it goes on."""
        if self.rank:
            self.wires.box(self.rank, 0).put(x)
            total = self.wires.take(0, self.rank)
        else:
            total = ring_sum([x, *(self.wires.take(peer, 0) for peer in range(1, self.size))])
            for peer in range(1, self.size):
                self.wires.box(0, peer).put(total)
        x.copy_(total)

    def aside(self) -> MemoryTransport:
        self.asides += 1
        return MemoryTransport(self.rank, self.wires.aside(self.asides))

    def close(self) -> None:
        """Says that nothing more comes from this rank, also beside: those who wait for it fail at once."""
        self.wires.closed.add(self.rank)


def ring_sum(vectors: Sequence[Tensor]) -> Tensor:
    """Returns the sum of each rank's vector [m], to the bit as gloo's ring has it.

    The ring cuts vectors into as many parts as ranks, of whole segments: twice as many as ranks, or of 1 MiB (gloo's
    allreduce.cc). The sum of part p begins on rank p - 1 and goes on from rank to rank, downwards.
    """
    size, flat = len(vectors), [vector.reshape(-1) for vector in vectors]
    if size == 1:
        return vectors[0].clone()
    length, width = flat[0].numel(), flat[0].element_size()
    segments = size * max(2, -(-length * width // (SEGMENT_BYTES * size)))
    part = segments // size * -(-length // segments)
    total = torch.empty_like(flat[0])
    for place in range(size):
        span = slice(place * part, (place + 1) * part)
        first, second, *others = (flat[(place - 1 - back) % size][span] for back in range(size))
        torch.add(first, second, out=total[span])
        for other in others:
            total[span] += other
    return total.view_as(vectors[0])


class Wires:
    """Holds the mailboxes that the `MemoryTransport`s of one run share, one per pair of ranks, made at first use."""

    def __init__(self, size: int, timeout_s: float = 60.0, closed: set[int] | None = None):
        """`closed`: the ranks that have left, where others need to know them too."""
        self.size, self.timeout_s, self.closed = size, timeout_s, set[int]() if closed is None else closed
        self._boxes: dict[tuple[int, int], queue.SimpleQueue[Tensor]] = {}
        self._asides: dict[int, Wires] = {}
        self._lock = threading.Lock()

    def aside(self, number: int) -> Wires:
        with self._lock:
            return self._asides.setdefault(number, Wires(self.size, self.timeout_s, self.closed))

    def box(self, source: int, to: int) -> queue.SimpleQueue[Tensor]:
        with self._lock:
            return self._boxes.setdefault((source, to), queue.SimpleQueue())

    def take(self, source: int, to: int) -> Tensor:
        waited, left = 0.0, False
        while not left and waited < self.timeout_s:
            left = source in self.closed  # asked first: what it sent before it left is in the box by now
            try:
                return self.box(source, to).get(timeout=0 if left else 0.5)
            except queue.Empty:
                waited += 0.5
        raise RuntimeError(f"no message from rank {source} to rank {to}: a rank failed or waited too long")
