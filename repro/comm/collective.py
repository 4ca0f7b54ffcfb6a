"""Collective: the calls with which an algorithm talks to other ranks. Each call counts the bytes that it sends."""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from repro.clock import finish_stream
from repro.comm.traffic import Round, Traffic, ring


class Transport(Protocol):
    """Moves tensors between ranks; `repro.comm.transport` implements gloo, NCCL and plain memory."""

    rank: int
    size: int
    segments: int  # messages of a round of its `all_reduce`; 0: as many as gloo's own sends
    header: int  # bytes around a message

    def send(self, x: Tensor, peer: int) -> None: ...

    def recv(self, into: Tensor, peer: int) -> None: ...

    def exchange(self, x: Tensor, to: int, into: Tensor, source: int) -> None: ...

    def all_reduce(self, x: Tensor) -> None: ...

    def aside(self) -> Transport: ...

    def close(self) -> None: ...


class CollectiveError(RuntimeError):
    """Reports that a collective failed on this rank, with the rank, the operation and the peer it waited for."""


class Collective:
    """Connects the ranks over one transport.

    `traffic` counts what this rank sent and received, round by round, so an algorithm cannot misreport;
    `seconds` is the time spent in calls, waiting for slower ranks included; `hidden_s` is the part of it that other
    threads spent while this thread did not wait.
    """

    def __init__(self, transport: Transport, names: Sequence[int] | None = None, of: Collective | None = None):
        """`names`: what to call the ranks, where they are some of more. `of` stands where this one does, besides."""
        self.transport = transport
        self.names = names or range(transport.size)
        self.rank, self.size = transport.rank, transport.size
        self.traffic = Traffic()
        self.seconds, self.hidden_s = 0.0, 0.0
        self.other: Collective | None = None  # made by `aside`
        self.of = of
        self.position: tuple[str | None, float] = (None, time.perf_counter())  # the call it is in, and since when

    def all_reduce(self, x: Tensor) -> Tensor:
        """Sums `x` over all ranks, in place: a ring, reduce-scatter then all-gather, of 2(P-1) rounds of |x|/P."""
        if self.size > 1:
            with self._span("all_reduce"):
                self.transport.all_reduce(x)
            done = ring(self.rank, self.size, x.numel(), x.element_size())
            self.traffic.add(done._replace(segments=self.transport.segments, header=self.transport.header))
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        """Stacks all ranks' `x`: [P, *x.shape]. Bruck et al., 1997: ceil(log2 P) rounds, (P-1)|x| sent, for any P."""
        blocks = x.new_empty((self.size, *x.shape))  # block i is that of rank (rank + i) mod P until the last line
        blocks[0] = x
        have = 1
        while have < self.size:
            count = min(have, self.size - have)
            to, source = (self.rank - have) % self.size, (self.rank + have) % self.size
            self._transfer("all_gather", blocks[:count], to, blocks[have : have + count], source)
            have += count
        return blocks.roll(self.rank, 0)

    def exchange(self, x: Tensor, peer: int) -> Tensor:
        """Sends `x` to `peer` while receiving its tensor of the same shape and dtype: one full-duplex round."""
        return self.shift(x, peer, peer)

    def shift(self, x: Tensor, to: int, source: int, like: Tensor | None = None) -> Tensor:
        """Sends `x` to `to` while receiving a tensor like `like`, or `x`, from `source`: one full-duplex round.

        If `x` or `like` is empty, nothing travels in that direction; both ends must know.
        """
        received = torch.empty_like(x if like is None else like)
        if x.numel() and received.numel():
            self._transfer("exchange", x, to, received, source)
        elif x.numel():
            self.send(x, to)
        elif received.numel():
            received = self.recv(received, source)
        return received

    def send(self, x: Tensor, peer: int) -> None:
        with self._span("send", peer):
            self.transport.send(x, peer)
        self.traffic.add(Round(peer, x.nbytes, None, 0, header=self.transport.header))

    def recv(self, like: Tensor, peer: int) -> Tensor:
        """Receives a tensor of the shape and dtype of `like` from `peer`."""
        received = torch.empty_like(like)
        with self._span("recv", peer):
            self.transport.recv(received, peer)
        self.traffic.add(Round(None, 0, peer, received.nbytes, header=self.transport.header))
        return received

    def broadcast(self, x: Tensor, root: int = 0) -> Tensor:
        """Returns `root`'s `x` on every rank by a binomial tree of ceil(log2 P) rounds. `x` fixes shape and dtype."""
        place = (self.rank - root) % self.size
        for distance in reversed(list(distances(self.size))):
            if place % (2 * distance) == distance:
                x = self.recv(x, (self.rank - distance) % self.size)
            elif place % (2 * distance) == 0 and place + distance < self.size:
                self.send(x, (self.rank + distance) % self.size)
        return x

    def aside(self) -> Collective:
        """Connects the same ranks on separate wires, for another thread. All ranks must make the first call."""
        if self.other is None:
            self.other = Collective(self.transport.aside(), self.names)
        return self.other

    def join(self, aside: Collective, waited: float) -> None:
        """Counts here what `aside` has sent since it was last joined; this thread waited `waited` seconds for it."""
        for done in aside.traffic.rounds:
            self.traffic.add(done)
        self.seconds += aside.seconds
        self.hidden_s += max(0.0, aside.seconds - waited)  # a wait that was woken late hid nothing
        aside.traffic, aside.seconds = Traffic(), 0.0

    def barrier(self) -> None:
        self.all_reduce(torch.zeros(1))

    def gather_objects(self, item: Any) -> list[Any]:
        """Returns every rank's `item`, in rank order. It pickles, so it is for control only (rounds, errors)."""
        payload = torch.frombuffer(bytearray(pickle.dumps(item)), dtype=torch.uint8)
        sizes = self.all_gather(torch.tensor([payload.numel()]))
        padded = payload.new_zeros(int(sizes.max()))
        padded[: payload.numel()] = payload
        rows = self.all_gather(padded)
        parts = [rows[r, : int(sizes[r])].numpy().tobytes() for r in range(self.size)]
        return [pickle.loads(part) for part in parts]  # noqa: S301  (the ranks of one run trust each other)

    def _transfer(self, name: str, x: Tensor, to: int, into: Tensor, source: int) -> None:
        with self._span(name, *dict.fromkeys((to, source))):
            self.transport.exchange(x, to, into, source)
        self.traffic.add(Round(to, x.nbytes, source, into.nbytes, header=self.transport.header))

    @contextmanager
    def _span(self, name: str, *peers: int) -> Iterator[None]:
        finish_stream()  # what was computed before the message is none of its seconds
        start = time.perf_counter()
        what = f"{name} with rank {' and '.join(str(self.names[peer]) for peer in peers) or 'all'}"
        self._stands(what, start)
        try:
            yield
            finish_stream()  # NCCL's wait makes the stream wait, not this thread
            self._stands(None, time.perf_counter())  # kept after a failure, so that others can ask where it failed
        except RuntimeError as error:
            waited = time.perf_counter() - start
            reason = re.sub(r"^\[\S*gloo\S*\] ", "", str(error).strip()).split(". This is")[0].splitlines()[0]
            text = f"rank {self.names[self.rank]} failed in {what} after {waited:.1f} s: {reason}"
            raise CollectiveError(text) from error
        finally:
            self.seconds += time.perf_counter() - start

    def _stands(self, inside: str | None, since: float) -> None:
        self.position = inside, since
        if self.of is not None:
            self.of._stands(inside, since)


def distances(size: int) -> Iterator[int]:
    """Yields 1, 2, 4, ... below `size`: the ceil(log2 P) rounds of trees and butterflies."""
    distance = 1
    while distance < size:
        yield distance
        distance *= 2
