"""What an algorithm puts on the wire, as formulas: each file in algorithms/ has a `cost` made of these."""

import math
from typing import NamedTuple

PAIR_BYTES = 8  # one sparse entry on the wire: int32 index + float32 value


class Cost(NamedTuple):
    """Of one step of P nodes: bytes that the busiest node sends, and the rounds of the node that has most."""

    bytes: int
    rounds: int


def together(*parts: Cost) -> Cost:
    """One after the other."""
    return Cost(sum(part.bytes for part in parts), sum(part.rounds for part in parts))


def all_reduce(size: int, elements: int, itemsize: int = 4) -> Cost:
    """A ring: 2 (P-1)/P m elements in 2 (P-1) rounds."""
    return Cost(2 * (size - 1) * -(-elements // size) * itemsize, 2 * (size - 1))


def all_gather(size: int, block: int) -> Cost:
    """Bruck's: P - 1 blocks of so many bytes in log2 P rounds."""
    return Cost((size - 1) * block, log2(size))


def scatter_reduce(size: int, chunk: int) -> Cost:
    """To the owners and back: 2 (P-1) chunks of so many bytes in P - 1 + log2 P rounds."""
    return together(Cost((size - 1) * chunk, size - 1), all_gather(size, chunk))


def log2(size: int) -> int:
    """ceil(log2 P)."""
    return math.ceil(math.log2(size))
