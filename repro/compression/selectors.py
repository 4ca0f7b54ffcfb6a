"""Selectors pick about k large entries of a vector: `algo.selector=exact|sampled|gaussian|chunked|mstopk`.

Only `exact` has no error; the others replace a slow top-k in the literature and are here for comparison.
None returns more than k entries (a message has room for k) or a zero. None draws random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import torch
from torch import Tensor

from repro.compression.sparse import Sparse
from repro.compression.sparse import select as exact

Selector = Callable[[Tensor, int], Sparse]


def sampled(x: Tensor, k: int) -> Sparse:
    """Takes the threshold of a 1 % sample and keeps the top k of what passes (DGC, Lin et al., ICLR 2018).

    Error: the sample holds k / 100 of the top k, so the threshold's position among the sorted entries is off by
    10 / sqrt(k) of k (one standard deviation): 6 % for k = 25,000, 60 % for k = 270. If the threshold is too
    high, that many entries are missing. The sample begins at the first entry in every step; DGC's code draws where.
    """
    sample = x[:: max(1, min(100, x.numel() // 1000)) | 1].abs()
    share = max(1, round(min(k / x.numel(), 1) * sample.numel()))
    return at_most(above(x, sample.topk(share).values[-1]), k)


def gaussian(x: Tensor, k: int) -> Sparse:
    """Takes a normal distribution's threshold (Gaussian-k, Shi et al., arXiv 1911.08772).

    It is halved or raised by half up to four times, until 2/3 k to 4/3 k entries exceed it.
    Error: from 0 to k entries, as gradients are not normal. If more than k exceed the threshold, the first k
    are returned, not the largest.
    """
    mean, deviation = x.mean(), x.std(correction=0)
    if not mean.isfinite():  # nothing is above such a threshold, and a model that diverges is to be seen
        return exact(x, k)
    tail = min(k / x.numel(), 1) / 2  # on each side
    threshold = mean.abs() - deviation * NormalDist().inv_cdf(tail)
    for _ in range(4):
        count = int((x.abs() > threshold).sum())
        if 2 * k <= 3 * count <= 4 * k:
            break
        threshold = threshold * (1.5 if count > k else 0.5)
    index, value = above(x, threshold)
    return Sparse(index[:k], value[:k])


def chunked(x: Tensor, k: int) -> Sparse:
    """Returns the largest entry of each of k chunks of about m / k (as in ScaleCom, Chen et al., NeurIPS 2020).

    Error: a chunk's second largest entry is always missed. If entries are in random order, 63 % (1 - 1/e) of
    those returned are among the true top k; if large entries cluster, as in layers, fewer are.
    """
    k = min(k, x.numel())
    width, more = divmod(x.numel(), k)
    cut = more * (width + 1)  # the first `more` chunks have one entry more than the others
    parts = x[:cut].view(more, width + 1), x[cut:].view(k - more, width)
    first = (torch.arange(len(part), device=x.device) * part.shape[1] for part in parts)
    within = [part.abs().argmax(1) + start for part, start in zip(parts, first, strict=True)]
    index = torch.cat([within[0], within[1] + cut])
    return _pairs(x, index[x[index] != 0])


def mstopk(x: Tensor, k: int) -> Sparse:
    """Finds two close thresholds by bisection, one that at most k entries exceed and one that more do (MSTopK).

    30 halvings start between the mean and the largest magnitude (Shi et al., MLSys 2021), or from zero where fewer
    than k entries exceed the mean. Error: entries above the first threshold are returned, and the places left are
    filled from between the two in index order: only entries that differ by less than 2^-30 of the largest are confused.
    """
    magnitude = x.abs()
    mean, few = magnitude.mean(), magnitude.max()
    if not mean.isfinite():
        return exact(x, k)
    many = mean if int((magnitude > mean).sum()) >= k else mean * 0
    low, high = many, few
    for _ in range(30):
        middle = (low + high) / 2
        count = int((magnitude > middle).sum())
        if count == k:
            few = middle
            break
        if count < k:
            few = high = middle
        else:
            many = low = middle
    sure = (magnitude > few).nonzero().squeeze(1)
    between = ((magnitude > many) & (magnitude <= few)).nonzero().squeeze(1)[: k - sure.numel()]
    return _pairs(x, torch.cat([sure, between]).sort().values)


SELECTORS: dict[str, Selector] = {
    "exact": exact, "sampled": sampled, "gaussian": gaussian, "chunked": chunked, "mstopk": mstopk
}  # fmt: skip


def named(name: str) -> Selector:
    if name not in SELECTORS:
        raise ValueError(f"no selector is called {name!r}; type algo.selector={'|'.join(SELECTORS)}")
    return SELECTORS[name]


def above(x: Tensor, threshold: Tensor | float) -> Sparse:
    """Returns the non-zero entries whose magnitude is at least `threshold`, and what is not a number."""
    magnitude = x.abs()
    return _pairs(x, (~(magnitude < threshold) & (magnitude != 0)).nonzero().squeeze(1))


def at_most(entries: Sparse, k: int) -> Sparse:
    """Returns the k largest of the entries."""
    if entries.index.numel() <= k:
        return entries
    position, value = exact(entries.value, k)
    return Sparse(entries.index[position], value)


def _pairs(x: Tensor, index: Tensor) -> Sparse:
    return Sparse(index.int(), x[index])
