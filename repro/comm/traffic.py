"""Counts what ranks send each other: the rounds of one rank, and a link that carries them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

HEADERS_BYTES = 144  # gloo's, of one message at its sockets: two of 48 bytes to the receiver, one back
SEGMENT_BYTES = 1 << 20  # of gloo's ring: a chunk travels in at least two messages, none of more bytes


class Round(NamedTuple):
    """Records one round of one rank: `sent` bytes went to rank `to` while `received` came from rank `source`.

    `repeat` means that many equal rounds in a row; the partners of a repeated round repeat it as often. `segments` are
    the messages in which the bytes of a round travel, 0: those in which gloo's own all-reduce sends them. `header` are
    the bytes around one message.
    """

    to: int | None
    sent: int
    source: int | None
    received: int
    repeat: int = 1
    segments: int = 0
    header: int = HEADERS_BYTES


class Link(NamedTuple):
    """Describes one direction between two nodes."""

    alpha_s: float
    beta_s_per_byte: float

    def seconds(self, size: float) -> float:
        return self.alpha_s + self.beta_s_per_byte * size


def bytes_sent(rounds: Iterable[Round]) -> int:
    """Returns the bytes that a rank sends in `rounds`, without framing."""
    return sum(done.sent * done.repeat for done in rounds)


def framing(done: Round) -> int:
    """Returns the bytes of headers that gloo, or our own sockets, add to what is sent in `done`, in both directions.

    The model's alpha, where it is measured over gloo, contains the time they take.
    """
    segments = done.segments or (max(2, -(-done.sent // SEGMENT_BYTES)) if done.repeat > 1 else 1)
    return done.header * segments * done.repeat * (done.to is not None)


@dataclass
class Traffic:
    """Counts what one rank sent and received, and lists its rounds; `framing` is not in the bytes."""

    messages: int = 0  # sent by this rank
    bytes_sent: int = 0
    bytes_received: int = 0
    framing: int = 0
    rounds: list[Round] = field(default_factory=list)

    def add(self, done: Round) -> None:
        self.messages += done.repeat * (done.to is not None)
        self.bytes_sent += done.repeat * done.sent
        self.bytes_received += done.repeat * done.received
        self.framing += framing(done)
        self.rounds.append(done)


def ring(rank: int, size: int, elements: int, itemsize: int) -> Round:
    """Returns the rounds of one rank in a ring all-reduce of `elements`: reduce-scatter, then all-gather.

    Chunks differ by one element if P does not divide `elements`. Every round counts the longest chunk, which sets
    the pace: this is the same on all ranks, and per rank less than 2 P elements more than what is really sent.
    """
    chunk = -(-elements // size) * itemsize
    return Round((rank + 1) % size, chunk, (rank - 1) % size, chunk, repeat=2 * (size - 1))
