"""Selects and merges in torch operators, for any device and float type; `sparse_kernels.py` is the fast version.

Each function learns one number from the data, of entries that it returns (`select` two, where entries tie): on a GPU
each is a wait.
"""

from __future__ import annotations

import torch
from torch import Tensor

Pairs = tuple[Tensor, Tensor]  # index, value


def select(x: Tensor, k: int) -> Pairs:
    """Returns the k largest magnitudes of x [m], ties to the smaller index, no zeros, as `sparse.select` does.

    What is not a number is the largest: a model that diverges is to be seen.
    """
    magnitude = x.abs()
    k = min(k, x.numel())
    below = magnitude < magnitude.topk(k).values[-1:]  # False where one of both is not a number
    candidates = below.logical_not_().logical_and_(magnitude != 0).nonzero().squeeze(1)
    if candidates.numel() > k:  # ties for the last places
        value = x[candidates]
        candidates = candidates[_largest(value, torch.ones_like(value, dtype=torch.bool), k)]
    return candidates.int(), x[candidates]


def merge_with_rest(a: Pairs, b: Pairs, k: int) -> tuple[Pairs, Pairs]:
    """Does what `sparse.merge_with_rest` does."""
    index, order = torch.cat([a[0], b[0]]).sort()
    value = torch.cat([a[1], b[1]])[order]
    again = torch.zeros_like(index, dtype=torch.bool)  # an index of both: its sum stands at the first of the two
    torch.eq(index[1:], index[:-1], out=again[1:])
    value[:-1] += torch.where(again[1:], value[1:], 0)
    present = ~again & (value != 0)
    kept = _largest(value, present, k)
    place = torch.stack([kept, present & ~kept]).nonzero()[:, 1]
    count = min(k, place.numel())  # of the kept, which come first
    index, value = index[place], value[place]
    return (index[:count], value[:count]), (index[count:], value[count:])


def outside(index: Tensor, other: Tensor) -> Tensor:
    """Returns the places in `index` [n] of what is not in `other` [m]; both ascend."""
    next_one = torch.searchsorted(other, index)
    beyond = torch.cat([other, other.new_full((1,), -1)])  # which no index is
    return (beyond[next_one] != index).nonzero().squeeze(1)


def _largest(value: Tensor, among: Tensor, k: int) -> Tensor:
    """Returns which are the k largest magnitudes `among` the values [n], ties to the first; all if there are fewer."""
    if value.numel() <= k:
        return among
    magnitude = value.abs().nan_to_num_(nan=torch.inf, posinf=torch.inf).masked_fill_(~among, -1)
    threshold = magnitude.topk(k).values[-1]
    above, ties = magnitude > threshold, (magnitude == threshold) & among
    return above | (ties & (ties.cumsum(0) <= k - above.sum()))
