"""Sends recorded rounds again on a real wire: messages of the same sizes, without the algorithm between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from repro.comm.collective import Transport
from repro.comm.sockets import SocketTransport
from repro.comm.traffic import Round


def play(rounds: Sequence[Round], transport: Transport) -> Callable[[], None]:
    """Returns a call that sends the messages of `rounds` again over `transport`; all ranks make it at once.

    Over our own sockets a ring all-reduce needs memory for one chunk: its rounds, with their sums, are made here.
    """
    size, own_rounds = transport.size, isinstance(transport, SocketTransport)
    single = [done for done in rounds if done.repeat == 1 or own_rounds]
    outgoing = torch.zeros(max((done.sent for done in single), default=0), dtype=torch.uint8)
    incoming = torch.zeros(max((done.received for done in single), default=0), dtype=torch.uint8)
    whole = 0 if own_rounds else max((done.sent * size // 4 for done in rounds if done.repeat > 1), default=0)
    summed = torch.zeros(whole)

    def ring(done: Round) -> None:
        assert done.to is not None and done.source is not None  # noqa: S101  (Traffic's ring has both)
        out, into = outgoing[: done.sent], incoming[: done.received]
        words = done.received // 4 * 4
        for number in range(done.repeat):
            transport.exchange(out, done.to, into, done.source)
            if number < done.repeat // 2:
                into[:words].view(torch.float32).add_(out[:words].view(torch.float32))

    def once() -> None:
        for done in rounds:
            if done.repeat > 1 and own_rounds:
                ring(done)
            elif done.repeat > 1:
                transport.all_reduce(summed[: done.sent * size // 4])
            else:
                move(done, transport, outgoing, incoming)

    return once


def move(done: Round, wire: Transport, out: Tensor, into: Tensor) -> None:
    """Makes the messages of one round again, from the beginning of `out` and to that of `into`, both uint8."""
    if done.to is not None and done.source is not None:
        wire.exchange(out[: done.sent], done.to, into[: done.received], done.source)
    elif done.to is not None:
        wire.send(out[: done.sent], done.to)
    elif done.source is not None:
        wire.recv(into[: done.received], done.source)
