"""Sums sparse vectors at owners of index ranges: rank r sums what all ranks selected in range r, then all share it.

This is the skeleton of Ok-Topk (Li & Hoefler, PPoPP 2022, section 3): no rank receives an entry that it need not add,
so a node moves about 2 k pairs for any P. `largest` is ours: it finds the exact k largest over all owners without
moving them.
"""

from __future__ import annotations

import bisect
import itertools

import torch
from torch import Tensor

from repro.comm.collective import Collective, distances
from repro.comm.cost_formulas import Cost, all_gather, in_turn, log2, message_bytes, most_bytes
from repro.compression.sparse import Sparse
from repro.compression.wire import Wire

BITS = 8  # bits of the key that one histogram resolves
SLACK = 16  # up to k / SLACK extra entries are gathered and dropped later, which saves another histogram
KEY_BITS = 62  # 31 of the magnitude, 31 of the index


def ranges(index: Tensor, size: int, parameters: int) -> Tensor:
    """Returns the P - 1 inner boundaries that split the ascending `index` evenly, or [0, m) if it is too short."""
    n = index.numel()
    if n < size:
        return torch.arange(1, size, device=index.device) * parameters // size
    return index[torch.arange(1, size, device=index.device) * n // size].long()


def sum_at_owners(local: Sparse, boundaries: Tensor, wire: Wire, collective: Collective) -> Sparse:
    """Returns this rank's range of the sum of all ranks' `local`, ascending, added in rank order, without zeros."""
    owners = _by_owner(wire, boundaries)
    cuts = torch.searchsorted(local.index.long(), boundaries).tolist()
    edges = [0, *cuts, local.index.numel()]
    parts = [_span(local, start, stop) for start, stop in zip(edges, edges[1:], strict=False)]
    parts = _exchange(parts, owners, collective)
    index, position = torch.cat([part.index for part in parts]).unique(sorted=True, return_inverse=True)
    total = local.value.new_zeros(index.numel())
    for part, at in zip(parts, position.split([part.index.numel() for part in parts]), strict=True):
        total[at] += part.value  # no index twice in one part
    return Sparse(index[total != 0], total[total != 0])


def largest(mine: Sparse, k: int, collective: Collective) -> Sparse:
    """Returns this rank's share of the k largest magnitudes over all ranks, and up to k / SLACK more.

    Ties go to the smaller index. A radix selection: the key of an entry is the bits of its magnitude, then of its
    index, so keys are distinct; histograms of 8 bits of the key, summed over the ranks, narrow down the k-th largest.
    """
    magnitude = mine.value.abs().float().view(torch.int32).long()
    key = (magnitude << 31) | (torch.iinfo(torch.int32).max - mine.index.long())
    low, missing, shift = 0, k, KEY_BITS  # the k-th key is the `missing`-th largest in [low, low + 2^shift)
    while shift > 0:
        inside = key[(key >= low) & (key < low + (1 << shift))]
        width = min(BITS, shift)
        shift -= width
        histogram = torch.bincount((inside - low) >> shift, minlength=1 << width)
        from_top = sum_small(histogram.int(), collective).flip(0).cumsum(0)
        if int(from_top[-1]) <= missing:
            break  # all remaining keys are needed
        digit = int((from_top < missing).sum())
        low += ((1 << width) - 1 - digit) << shift
        above = int(from_top[digit - 1]) if digit else 0
        if int(from_top[digit]) - missing <= k // SLACK:
            break
        missing -= above
    return Sparse(mine.index[key >= low], mine.value[key >= low])


def gather(mine: Sparse, boundaries: Tensor, wire: Wire, collective: Collective) -> Sparse:
    """Returns all owners' entries, in rank order; they are first spread evenly, so all ranks send equally much."""
    rank, size, owners = collective.rank, collective.size, _by_owner(wire, boundaries)
    counts = collective.all_gather(torch.tensor([mine.index.numel()], dtype=torch.int32)).view(-1).tolist()
    total, start = sum(counts), sum(counts[:rank])
    if not total:
        return mine
    share = [total * r // size for r in range(size + 1)]
    parts = [_span(mine, *(min(max(edge - start, 0), counts[rank]) for edge in share[r : r + 2])) for r in range(size)]
    mine = _join(_exchange_known(parts, _overlaps(counts, share, rank), [owners[rank]] * size, owners, collective))
    most, rows = -(-total // size), _of_shares(wire, boundaries, counts, share)
    message, _ = rows[rank].pack(mine, most)
    received = collective.all_gather(message)
    return _join([row.unpack(one, most) for row, one in zip(rows, received, strict=True)])


def sum_small(x: Tensor, collective: Collective) -> Tensor:
    """Sums all ranks' integers `x` by swapping whole vectors at distances 1, 2, 4, ..., as only latency matters here.

    It takes floor(log2 P) rounds, and two more if P is not a power of two.
    """
    rank, size = collective.rank, collective.size
    core = 1 << (size.bit_length() - 1)
    if rank >= core:
        collective.send(x, rank - core)
        return collective.recv(x, rank - core)
    if rank + core < size:
        x = x + collective.recv(x, rank + core)
    for distance in distances(core):
        x = x + collective.exchange(x, rank ^ distance)
    if rank + core < size:
        collective.send(x, rank + core)
    return x


def bound(size: int, parameters: int, k: int, wire: str) -> Cost:
    """Returns the most that a node sends if every rank and the result have k entries: 6.25 k words, and counts.

    These are 4 k (P-1)/P words if the ranges hold equally many entries; 2 k more spread them if one range holds all. A
    sixteenth of what is sent back is room for ties.
    """
    if size == 1:
        return Cost(0, 0)
    kept = k + k // SLACK
    parts = most_bytes(wire, k, parameters, size - 1) + most_bytes(wire, kept, parameters, size - 1)
    pairs = parts + (size - 1) * message_bytes(wire, -(-kept // size), parameters)
    counts = in_turn(all_gather(size, 4 * size), all_gather(size, 4))
    histograms = -(-KEY_BITS // BITS)
    sums = Cost(histograms * 4 * 2**BITS * (log2(size) + 1), histograms * (log2(size) + 1))
    return in_turn(Cost(pairs, 2 * (size - 1) + log2(size)), counts, sums)


def _by_owner(wire: Wire, boundaries: Tensor) -> list[Wire]:
    """Returns the wire for each owner's range."""
    edges = [0, *boundaries.tolist(), wire.memory.residual.numel()]
    return [wire.within(start, stop) for start, stop in zip(edges, edges[1:], strict=False)]


def _of_shares(wire: Wire, boundaries: Tensor, counts: list[int], share: list[int]) -> list[Wire]:
    """Returns the wire for each rank's share of all entries: the ranges of the owners that they come from.

    All are as wide as the widest, so that all messages have one size.
    """
    edges = [0, *boundaries.tolist(), wire.memory.residual.numel()]
    ends, spans = list(itertools.accumulate(counts)), []
    for first, last in zip(share, share[1:], strict=False):
        left, right = (bisect.bisect_right(ends, place) for place in (first, last - 1))  # owners of both ends
        spans.append((edges[left], edges[right + 1]) if first < last else (0, 0))
    width = max(stop - start for start, stop in spans)
    return [wire.within(start, start + width) for start, _ in spans]


def _exchange(parts: list[Sparse], owners: list[Wire], collective: Collective) -> list[Sparse]:
    """Sends part r to its owner, rank r, and returns each rank's part for this one. Lengths are sent first."""
    lengths = torch.tensor([part.index.numel() for part in parts], dtype=torch.int32)
    incoming = collective.all_gather(lengths)[:, collective.rank].tolist()
    return _exchange_known(parts, incoming, owners, [owners[collective.rank]] * collective.size, collective)


def _exchange_known(
    parts: list[Sparse], lengths: list[int], to_each: list[Wire], from_each: list[Wire], collective: Collective
) -> list[Sparse]:
    """Does the same if this rank knows how many entries each rank sends to it. Empty messages are not sent."""
    rank, size = collective.rank, collective.size
    received = list(parts)
    for distance in range(1, size):
        to, source = (rank + distance) % size, (rank - distance) % size
        message, _ = to_each[to].pack(parts[to], parts[to].index.numel())
        answer = collective.shift(message, to, source, from_each[source].room(lengths[source]))
        received[source] = from_each[source].unpack(answer, lengths[source])
    return received


def _overlaps(counts: list[int], share: list[int], rank: int) -> list[int]:
    """Returns how many of each rank's entries fall into this rank's share of all entries."""
    overlaps, start = [], 0
    for count in counts:
        overlaps.append(max(0, min(start + count, share[rank + 1]) - max(start, share[rank])))
        start += count
    return overlaps


def _span(sparse: Sparse, start: int, stop: int) -> Sparse:
    return Sparse(sparse.index[start:stop], sparse.value[start:stop])


def _join(parts: list[Sparse]) -> Sparse:
    return Sparse(torch.cat([part.index for part in parts]), torch.cat([part.value for part in parts]))
