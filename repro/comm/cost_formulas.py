"""Gives costs as formulas: bytes and rounds, from which each algorithm makes its `cost`, and the paper's seconds."""

import math
from collections.abc import Callable
from typing import NamedTuple

from repro.comm.traffic import Link
from repro.compression.pair_sizes import message_bytes as message_bytes  # with cost formulas, they are asked for here
from repro.compression.pair_sizes import most_bytes as most_bytes

PAIR_BYTES = 8  # one sparse entry in the article's formulas, and with algo.wire=pairs: int32 index + float32 value


class Cost(NamedTuple):
    """Holds, for one step of P nodes, the most bytes that a node sends and the most rounds that a node has."""

    bytes: int
    rounds: int


def in_turn(*parts: Cost) -> Cost:
    """Adds up parts that follow each other."""
    return Cost(sum(part.bytes for part in parts), sum(part.rounds for part in parts))


def all_reduce(size: int, elements: int, itemsize: int = 4) -> Cost:
    """Costs a ring: 2 (P-1)/P m elements in 2 (P-1) rounds."""
    return Cost(2 * (size - 1) * -(-elements // size) * itemsize, 2 * (size - 1))


def all_gather(size: int, block: int) -> Cost:
    """Costs Bruck's all-gather: P - 1 blocks of `block` bytes in log2 P rounds."""
    return Cost((size - 1) * block, log2(size))


def scatter_reduce(size: int, chunk: int) -> Cost:
    """Costs the way to the owners and back: 2 (P-1) chunks of `chunk` bytes in P - 1 + log2 P rounds."""
    return in_turn(Cost((size - 1) * chunk, size - 1), all_gather(size, chunk))


def log2(size: int) -> int:
    """Returns ceil(log2 P)."""
    return math.ceil(math.log2(size))


# Closed forms: seconds for P = `size` nodes, exact for powers of two (the ring for every P that divides m).


def dense_ring(size: int, parameters: int, link: Link) -> float:
    """Returns 2 (P-1) alpha + 2 (P-1)/P m b, with b seconds per float32 element."""
    return 2 * (size - 1) * (link.alpha_s + parameters / size * 4 * link.beta_s_per_byte)


def topk_allgather(size: int, k: int, link: Link, pair_bytes: float = PAIR_BYTES) -> float:
    """Returns alpha log2 P + 2 (P-1) k b: recursive doubling, or Bruck for any P."""
    return log2(size) * link.alpha_s + (size - 1) * k * pair_bytes * link.beta_s_per_byte


def gtopk_tree_and_broadcast(size: int, k: int, link: Link, pair_bytes: float = PAIR_BYTES) -> float:
    """Returns 2 alpha log2 P + 4 k b log2 P: the paper's binomial tree to rank 0, then the broadcast."""
    return 2 * log2(size) * link.seconds(k * pair_bytes)


def gtopk_butterfly(size: int, k: int, link: Link, pair_bytes: float = PAIR_BYTES) -> float:
    """Returns alpha log2 P + 2 k b log2 P: every rank merges every round (the authors' README from July 2019)."""
    return log2(size) * link.seconds(k * pair_bytes)


# alpha of the sparse curves in the authors' model figure: start-up takes log2 P ms of Top-k's, 2 log2 P ms of gTop-k's
PLOTTED_ALPHA_S = 1e-3
ROUTES = {"tree": "gtopk", "butterfly": "gtopk_butterfly"}  # which of FORMS gTop-k's messages have, by algo.route
FORMS: dict[str, Callable[..., float]] = {  # by algorithm; results/paper.yaml uses the names of the functions
    "dense": dense_ring,
    "topk": topk_allgather,
    "gtopk": gtopk_tree_and_broadcast,
    "gtopk_butterfly": gtopk_butterfly,
}


def closed_form(algo: str, size: int, parameters: int, k: int, link: Link, wire: str = "pairs") -> float:
    """Returns the seconds of one aggregation by `algo`, one of FORMS, whose pairs travel as `wire` says."""
    if algo == "dense":
        return dense_ring(size, parameters, link)
    return FORMS[algo](size, k, link, message_bytes(wire, k, parameters) / k)
