"""Sparse sums by owners of index ranges: rank r sums what all ranks selected in range r, then all share the result.

The skeleton of Ok-Topk (Li & Hoefler, PPoPP 2022, section 3): nobody receives an entry that it need not add up, so
a node moves about 2 k pairs whatever P is. `largest` is ours: the exact k largest over all owners, found without
moving them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from repro.collective import Collective, distances
from repro.costs import PAIR_BYTES, Cost, all_gather, log2, together
from repro.sparse import Sparse, pack, select, unpack

BITS = 8  # of the key that one histogram resolves
SLACK = 16  # k / SLACK entries too many are gathered and cut there, rather than found by another histogram
KEY_BITS = 62  # 31 of the magnitude, 31 of the index


def ranges(index: Tensor, size: int, parameters: int) -> Tensor:
    """The P - 1 inner boundaries that share the ascending `index` out evenly; of [0, m) if there are too few."""
    n = index.numel()
    if n < size:
        return torch.arange(1, size, device=index.device) * parameters // size
    return index[torch.arange(1, size, device=index.device) * n // size].long()


def sum_at_owners(local: Sparse, boundaries: Tensor, collective: Collective) -> Sparse:
    """This rank's range of the sum of all ranks' `local`, ascending, added in rank order; zeros are left out."""
    cuts = torch.searchsorted(local.index.long(), boundaries).tolist()
    edges = [0, *cuts, local.index.numel()]
    parts = [_span(local, start, stop) for start, stop in zip(edges, edges[1:], strict=False)]
    parts = _exchange(parts, collective)
    index, position = torch.cat([part.index for part in parts]).unique(sorted=True, return_inverse=True)
    total = local.value.new_zeros(index.numel())
    for part, at in zip(parts, position.split([part.index.numel() for part in parts]), strict=True):
        total[at] += part.value  # no index twice in one part
    return Sparse(index[total != 0], total[total != 0])


def largest(mine: Sparse, k: int, collective: Collective) -> Sparse:
    """This rank's share of the k largest magnitudes over all ranks, ties to the smaller index, and k / SLACK more.

    Radix selection: entries are keyed by the bits of their magnitude, then of their index, so no two are alike;
    histograms of 8 bits of the key, summed over the ranks, narrow down where the k-th largest lies.
    """
    magnitude = mine.value.abs().float().view(torch.int32).long()
    key = (magnitude << 31) | (torch.iinfo(torch.int32).max - mine.index.long())
    low, missing, shift = 0, k, KEY_BITS  # the k-th key is the `missing`-th largest of those in [low, low + 2^shift)
    while shift > 0:
        inside = key[(key >= low) & (key < low + (1 << shift))]
        width = min(BITS, shift)
        shift -= width
        found = torch.bincount((inside - low) >> shift, minlength=1 << width)
        from_top = sum_small(found.int(), collective).flip(0).cumsum(0)
        if int(from_top[-1]) <= missing:
            break  # all that are left
        digit = int((from_top < missing).sum())
        low += ((1 << width) - 1 - digit) << shift
        above = int(from_top[digit - 1]) if digit else 0
        if int(from_top[digit]) - missing <= k // SLACK:
            break
        missing -= above
    return Sparse(mine.index[key >= low], mine.value[key >= low])


def gather(mine: Sparse, collective: Collective) -> Sparse:
    """All ranks' entries, in rank order. They are first spread evenly, so that every rank passes on equally much."""
    rank, size = collective.rank, collective.size
    counts = collective.all_gather(torch.tensor([mine.index.numel()], dtype=torch.int32)).view(-1).tolist()
    total, start = sum(counts), sum(counts[:rank])
    if not total:
        return mine
    share = [total * r // size for r in range(size + 1)]
    parts = [_span(mine, *(min(max(edge - start, 0), counts[rank]) for edge in share[r : r + 2])) for r in range(size)]
    mine = _join(_exchange_known(parts, _overlaps(counts, share, rank), collective))
    most = -(-total // size)
    return _join([unpack(row, mine.value.dtype) for row in collective.all_gather(pack(mine, most))])


def top(gathered: Sparse, k: int) -> Sparse:
    """The k largest of entries in index order, which are few."""
    if gathered.index.numel() <= k:
        return gathered
    kept = select(gathered.value, k).index.long()
    return Sparse(gathered.index[kept], gathered.value[kept])


def sum_small(x: Tensor, collective: Collective) -> Tensor:
    """The sum of all ranks' integers `x`: whole vectors swapped with partners 1, 2, 4, ..., as latency is all here.

    log2 P rounds, and two more beyond a power of two.
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


def bound(size: int, k: int) -> Cost:
    """The most that a node sends for k entries of every rank, and of the result: 6 k words and counts.

    4 k (P-1)/P words where the ranges hold equally many entries; 2 k more to spread them if one range holds all.
    """
    if size == 1:
        return Cost(0, 0)
    kept = k + k // SLACK
    pairs = PAIR_BYTES * (k + kept + (size - 1) * -(-kept // size))
    counts = together(all_gather(size, 4 * size), all_gather(size, 4))
    histograms = -(-KEY_BITS // BITS)
    sums = Cost(histograms * 4 * 2**BITS * (log2(size) + 1), histograms * (log2(size) + 1))
    return together(Cost(pairs, 2 * (size - 1) + log2(size)), counts, sums)


def _exchange(parts: list[Sparse], collective: Collective) -> list[Sparse]:
    """Part r goes to rank r; what comes back is each rank's part for this one. Lengths are told first."""
    lengths = torch.tensor([part.index.numel() for part in parts], dtype=torch.int32)
    told = collective.all_gather(lengths)[:, collective.rank].tolist()
    return _exchange_known(parts, told, collective)


def _exchange_known(parts: list[Sparse], lengths: list[int], collective: Collective) -> list[Sparse]:
    """The same where this rank knows how many entries each rank sends to it. Empty messages are not sent."""
    rank, size, value = collective.rank, collective.size, parts[0].value
    received = list(parts)
    for distance in range(1, size):
        to, source = (rank + distance) % size, (rank - distance) % size
        wire = pack(parts[to], parts[to].index.numel())
        like = wire.new_empty(lengths[source] * (4 + value.itemsize))
        received[source] = unpack(collective.shift(wire, to, source, like), value.dtype)
    return received


def _overlaps(counts: list[int], share: list[int], rank: int) -> list[int]:
    """How many of each rank's entries fall into this rank's share of the whole row."""
    found, start = [], 0
    for count in counts:
        found.append(max(0, min(start + count, share[rank + 1]) - max(start, share[rank])))
        start += count
    return found


def _span(sparse: Sparse, start: int, stop: int) -> Sparse:
    return Sparse(sparse.index[start:stop], sparse.value[start:stop])


def _join(parts: list[Sparse]) -> Sparse:
    return Sparse(torch.cat([part.index for part in parts]), torch.cat([part.value for part in parts]))
