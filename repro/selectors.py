"""Ways to pick about k large entries of a vector: `algo.selector=exact|sampled|gaussian|chunked|mstopk`.

Only `exact` has no error; the others are what the literature uses to be faster than a slow top-k, for comparison.
None returns more than k entries (the wire has room for k) nor a zero. All are deterministic: no random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from repro.sparse import Sparse
from repro.sparse import select as exact

Selector = Callable[[Tensor, int], Sparse]


def sampled(x: Tensor, k: int) -> Sparse:
    """DGC (Lin et al., ICLR 2018, Sec. 3.1): the threshold comes from 1 % of the entries; if more than k exceed it, an
    exact top-k of those.

    Error: the sample holds about k / 100 of the top k, so the threshold's rank is off by 10 / sqrt(k) (one standard
    deviation, relative): for k = 25,000 about 6 % fewer than k are returned half of the time, for k = 270 about 60 %.
    """
    sample = x[:: max(1, min(100, x.numel() // 1000)) | 1].abs()
    share = max(1, round(k * sample.numel() / x.numel()))
    return _at_most(_above(x, sample.topk(share).values[-1]), k)


def gaussian(x: Tensor, k: int) -> Sparse:
    """Gaussian-k (Shi et al., arXiv 1911.08772, Alg. 1): the threshold that a normal distribution of the same mean and
    deviation has, halved or raised by half up to four times until 2/3 k to 4/3 k entries exceed it.

    Error: from 0 to k entries; gradients have heavier tails than the normal, so often the last correction decides.
    If more than k exceed the threshold, the first k are returned, not the largest, as in the authors' code.
    """
    mean, deviation = x.mean(), x.std(correction=0)
    quantile = math.sqrt(2) * torch.erfinv(torch.tensor(1 - min(k / x.numel(), 1), dtype=torch.float64)).item()
    threshold = mean.abs() + deviation * min(quantile, 40.0)
    for _ in range(4):
        count = int((x.abs() > threshold).sum())
        if 2 * k <= 3 * count <= 4 * k:
            break
        threshold = threshold * (1.5 if count > k else 0.5)
    index, value = _above(x, threshold)
    return Sparse(index[:k], value[:k])


def chunked(x: Tensor, k: int) -> Sparse:
    """The largest entry of each of k equal chunks (as ScaleCom does, Chen et al., NeurIPS 2020, Sec. 3).

    Error: a chunk's second largest is missed however large it is. For entries in random order 63 % (1 - 1/e) of the
    returned are among the true top k; where large entries cluster, as in the layers of a network, fewer.
    """
    m = x.numel()
    width = -(-m // min(k, m))
    whole = m // width * width
    index = x[:whole].view(-1, width).abs().argmax(1) + torch.arange(0, whole, width, device=x.device)
    if whole < m:
        index = torch.cat([index, whole + x[whole:].abs().argmax(0, keepdim=True)])
    return _pairs(x, index[x[index] != 0])


def mstopk(x: Tensor, k: int) -> Sparse:
    """MSTopK (Shi et al., MLSys 2021, Alg. 1): 30 steps of bisection between the mean and the largest magnitude find one
    threshold that at most k entries exceed, and one that more do.

    Error: all above the first are returned, and the places left are filled from between the two in index order, not
    by magnitude. 30 halvings leave little between them: in practice only near ties are misplaced.
    """
    magnitude = x.abs()
    few, many = magnitude.max(), magnitude.mean() * 0
    low, high = magnitude.mean(), few
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


SELECTORS: dict[str, Selector] = {f.__name__: f for f in (sampled, gaussian, chunked, mstopk)} | {"exact": exact}


def named(name: str) -> Selector:
    if name not in SELECTORS:
        raise ValueError(f"no selector is called {name!r}; type one of algo.selector={'|'.join(sorted(SELECTORS))}")
    return SELECTORS[name]


def _above(x: Tensor, threshold: Tensor) -> Sparse:
    """The non-zero entries of at least that magnitude."""
    magnitude = x.abs()
    return _pairs(x, ((magnitude >= threshold) & (magnitude > 0)).nonzero().squeeze(1))


def _at_most(entries: Sparse, k: int) -> Sparse:
    """The k largest of the entries."""
    if entries.index.numel() <= k:
        return entries
    position, value = exact(entries.value, k)
    return Sparse(entries.index[position], value)


def _pairs(x: Tensor, index: Tensor) -> Sparse:
    return Sparse(index.int(), x[index])
