"""Selects and merges in torch operators, for any device and float type; `sparse_kernels.py` is the fast version."""

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
    return _split(candidates.int(), x[candidates], k)[0]


def merge_with_rest(a: Pairs, b: Pairs, k: int) -> tuple[Pairs, Pairs]:
    """Does what `sparse.merge_with_rest` does."""
    index, position = torch.cat([a[0], b[0]]).unique(sorted=True, return_inverse=True)
    left = a[1].new_zeros(index.numel())
    right = left.clone()
    left[position[: a[0].numel()]] = a[1]
    right[position[a[0].numel() :]] = b[1]
    total = left + right
    return _split(index[total != 0], total[total != 0], k)


def _split(index: Tensor, value: Tensor, k: int) -> tuple[Pairs, Pairs]:
    """Splits non-zero entries into the k largest magnitudes and the others, both in the order given."""
    magnitude = value.abs().nan_to_num_(nan=torch.inf, posinf=torch.inf)
    keep = torch.ones_like(magnitude, dtype=torch.bool)
    if value.numel() > k:
        threshold = magnitude.topk(k).values[-1]
        keep = magnitude > threshold
        ties = (magnitude == threshold).nonzero().squeeze(1)
        keep[ties[: k - int(keep.sum())]] = True
    return (index[keep], value[keep]), (index[~keep], value[~keep])
