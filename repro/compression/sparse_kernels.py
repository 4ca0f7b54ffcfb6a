"""Selects and merges for `sparse.py` in CPU memory with loops compiled by numba, comparing magnitudes as integers.

The bits of a float32 without its sign, read as an int32, order like its magnitude: denormals, infinities
and both zeros included. The kernels release the GIL and hold no state, so ranks that are threads may call
them at the same time. They are compiled when this module is imported, so forked ranks find them compiled.

Two habits make them fast: loops run over a slice from 0 or count with unsigned integers (numba checks an index that
might be negative at each access, which rules out vector instructions), and an appended item is written first and
counted after, without a branch to mispredict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

BLOCK = 128  # entries that are skipped together if the largest magnitude among them is too small
SUBBLOCK = 16  # the same inside a block that is not skipped
SLACK = 4096  # room for candidates beyond 2 k, so that a small k is seldom compacted
MAGNITUDE = np.int32(0x7FFFFFFF)
LANES = 4  # histograms filled in turn: neighbours often share a bin, where an increment must wait for the one before
START, ONE = np.uint64(0), np.uint64(1)


def compiled(signature: str, **options: Any) -> Callable[[Any], Any]:
    """Compiles at import; caches on disk beside this file, else in the user's cache, else not at all."""

    def decorate(function: Any) -> Any:
        try:
            return numba.njit(signature, nogil=True, cache=True, **options)(function)
        except RuntimeError:  # numba found no folder that it can write
            return numba.njit(signature, nogil=True, **options)(function)

    return decorate


@compiled("int32(int32[::1], int64)")
def kth_largest(bits, k):
    """Returns the k-th largest magnitude as an integer, 1 <= k <= bits.size: a radix search by 11 + 10 + 10 bits."""
    counts = np.empty((LANES, 2048), np.int32)
    near = bits  # the entries that begin with the prefix
    prefix = 0
    for shift, width in ((20, 11), (10, 10), (0, 10)):
        counts[:] = 0
        mask = (1 << width) - 1
        whole = near.size // LANES * LANES
        for i in range(0, whole, LANES):
            for lane in range(LANES):
                counts[lane, ((near[i + lane] & MAGNITUDE) >> shift) & mask] += 1
        for i in range(whole, near.size):
            counts[0, ((near[i] & MAGNITUDE) >> shift) & mask] += 1
        total = counts.sum(0)
        digit = mask
        while total[digit] < k:
            k -= total[digit]
            digit -= 1
        prefix = (prefix << width) | digit
        if shift > 0:
            same = np.empty(total[digit] + 1, np.int32)
            n = START
            for i in range(near.size):
                same[n] = near[i]
                n += np.uint64((near[i] & MAGNITUDE) >> shift == prefix)
            near = same[:n]
    return np.int32(prefix)


@compiled("int64(int32[::1], int32[::1], int64, int32, int32[::1], int32[::1])")
def keep_largest(index, bits, k, threshold, rest_index, rest_bits):
    """Moves the k largest entries to the front, the others to rest if it is not empty; returns how many are kept.

    Both keep their order. `threshold` is the k-th largest magnitude; of several equal to it the first stay.
    """
    ties = k
    for i in range(bits.size):
        ties -= (bits[i] & MAGNITUDE) > threshold
    kept = rest = START
    for i in range(bits.size):
        where, what = index[i], bits[i]
        tie = (what & MAGNITUDE) == threshold
        keep = ((what & MAGNITUDE) > threshold) | (tie & (ties > 0))
        ties -= tie
        index[kept] = where
        bits[kept] = what
        kept += np.uint64(keep)
        if rest_index.size > 0:
            rest_index[rest] = where
            rest_bits[rest] = what
            rest += np.uint64(not keep)
    return np.int64(kept)


@compiled("int64(int64)")
def stride(size):
    """Returns the distance of the entries of a sample of 4,096 to 65,536 of `size`."""
    samples = min(max(size >> 6, 1 << 12), 1 << 16)
    return size // samples | 1  # odd, so that the stride shares no factor 2 with layer shapes


@compiled("int32(float32[::1], float32[::1], int64)")
def estimate(x, gradient, k):
    """Estimates from a strided sample a magnitude that slightly more than k entries of x + gradient exceed.

    This is closer than the last step's threshold: under error feedback the residual piles up just below that.
    """
    step = stride(x.size)
    sample = x[::step].copy()
    for i in range(sample.size if gradient.size > 0 else 0):
        sample[i] += gradient[i * step]
    expected = sample.size * (k / x.size)
    rank = int(1.1 * expected + 4 * np.sqrt(expected)) + 2
    if rank > sample.size:
        return np.int32(0)
    return np.int32(max(kth_largest(sample.view(np.int32), rank) - 1, 0))


@compiled("int64(float32[::1], float32[::1], int64, int32, int32[::1], int32[::1])")
def candidates(x, gradient, k, threshold, index, bits):
    """Collects entries of x above the threshold, the k largest among them, in one pass; returns how many.

    When index and bits (at least k + BLOCK long) are full, the k largest so far stay and the threshold rises to
    their smallest: later entries of that magnitude would lose the tie. So a threshold that is too low costs
    time, and one that is too high returns fewer than k. A gradient, unless it is empty, is added to x in the
    same pass, while the block is in the nearest cache.
    """
    none = index[:0]
    x_bits = x.view(np.int32)
    n, room = START, np.uint64(index.size)
    for start in range(0, x.size, BLOCK):
        if gradient.size > 0:
            here, more = x[start : start + BLOCK], gradient[start : start + BLOCK]
            for i in range(here.size):
                here[i] += more[i]
        block = x_bits[start : start + BLOCK]
        largest = np.int32(0)
        for i in range(block.size):
            largest = max(largest, np.int32(block[i] & MAGNITUDE))
        if largest <= threshold:
            continue
        if n + np.uint64(BLOCK) > room:
            threshold = kth_largest(bits[:n], k)
            n = np.uint64(keep_largest(index[:n], bits[:n], k, threshold, none, none))
        for offset in range(0, block.size, SUBBLOCK):
            part = block[offset : offset + SUBBLOCK]
            largest = np.int32(0)
            for i in range(part.size):
                largest = max(largest, np.int32(part[i] & MAGNITUDE))
            if largest > threshold:
                for i in range(part.size):
                    index[n] = start + offset + i
                    bits[n] = part[i]
                    n += np.uint64((part[i] & MAGNITUDE) > threshold)
    return np.int64(n)


@compiled("int64(float32[::1], float32[::1], int64, int32, boolean, int32[::1], int32[::1])")
def select(x, gradient, k, threshold, take, index, bits):
    """Adds the gradient, if any, to x and writes x's k largest entries, ties to the smaller index; returns how many.

    `threshold` is a guess. If fewer than k entries exceed it, a second pass starts from zero: a wrong guess
    costs time, never exactness. `take` sets the selected entries of x to zero.
    """
    none = index[:0]
    n = candidates(x, gradient, k, threshold, index, bits)
    if n < k and threshold > 0:
        n = candidates(x, gradient[:0], k, np.int32(0), index, bits)
    if n > k:
        n = keep_largest(index[:n], bits[:n], k, kth_largest(bits[:n], k), none, none)
    if take:
        for i in range(n):
            x[index[i]] = 0
    return n


@compiled("int64(int32[::1], float32[::1], int32[::1], float32[::1], int32[::1], float32[::1])")
def add(a_index, a_value, b_index, b_value, index, value):
    """Writes the sum of two sparse vectors without its zeros, in one walk along both; returns how many entries.

    The sign of a difference steers the walk: a comparison would be a branch, mispredicted half of the time.
    """
    a_bits, b_bits, bits = a_value.view(np.int32), b_value.view(np.int32), value.view(np.int32)
    more_bits = np.zeros(index.size, np.int32)  # what b adds to each entry; what a adds is written to value
    i = j = n = START
    a_end, b_end = np.uint64(a_index.size), np.uint64(b_index.size)
    while i < a_end and j < b_end:
        ahead = np.int64(a_index[i]) - np.int64(b_index[j])
        a_first, b_first = ahead >> 63, -ahead >> 63  # -1 or 0
        index[n] = b_index[j] + (ahead & a_first)
        bits[n] = a_bits[i] & ~np.int32(b_first)
        more_bits[n] = b_bits[j] & ~np.int32(a_first)
        i += np.uint64(1 + b_first)
        j += np.uint64(1 + a_first)
        n += ONE
    for rest_index, rest_bits, begin in ((a_index, a_bits, i), (b_index, b_bits, j)):
        for at in range(np.int64(begin), rest_index.size):
            index[n], bits[n] = rest_index[at], rest_bits[at]
            n += ONE
    more, zeros = more_bits.view(np.float32), 0
    for at in range(np.int64(n)):
        value[at] += more[at]
        zeros += value[at] == 0
    if zeros == 0:
        return np.int64(n)
    kept = START
    for at in range(np.int64(n)):
        index[kept], value[kept] = index[at], value[at]
        kept += np.uint64(value[at] != 0)
    return np.int64(kept)


@compiled("int64(int32[::1], int32[::1], int32[::1])")
def outside(a, b, position):
    """Writes the positions in a of indices that are not in b, both ascending; returns how many."""
    i = j = n = 0
    while i < a.size and j < b.size:
        left, right = a[i], b[j]
        position[n] = i
        n += left < right
        i += left <= right
        j += right <= left
    while i < a.size:
        position[n] = i
        n += 1
        i += 1
    return n


@compiled("void(int32[:, ::1], float32[::1], int32)")
def add_packed(rows, out, padding):
    """Adds each row to out: k indices, then k values; a row with fewer entries is padded."""
    k = rows.shape[1] // 2
    for row in rows:
        index, value = row[:k], row[k:].view(np.float32)
        for i in range(k):
            if index[i] == padding:
                break
            out[index[i]] += value[i]
