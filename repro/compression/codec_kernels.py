"""Encodes and decodes `codecs.py`'s buckets in CPU memory with loops compiled by numba; each row is one bucket.

Minimum and maximum are found by comparing floats as integers: this compiles to vector instructions, and a nan
compares as larger than infinity instead of being ignored.
"""

from __future__ import annotations

import numpy as np

from repro.compression.sparse_kernels import MAGNITUDE, compiled

INFINITY = np.int32(0x7F800000)
TINY = np.float32(np.finfo(np.float32).tiny)


@compiled("void(float32[:, ::1], float32[:, ::1], uint8[:, ::1])")
def minmax_encode(x, header, levels):
    """Writes header [buckets, 2], the step and the lowest level, and levels [buckets, width], 0 to 255."""
    for row in range(x.shape[0]):
        entries, row_levels = x[row], levels[row]
        bits = entries.view(np.int32)
        low = high = np.int32(0)  # keys that order like the floats; the range always includes zero
        for i in range(bits.size):
            key = bits[i] ^ ((bits[i] >> 31) & MAGNITUDE)
            low, high = min(low, key), max(high, key)
        low ^= (low >> 31) & MAGNITUDE
        if high >= INFINITY or (low & MAGNITUDE) >= INFINITY:
            header[row] = np.nan
            row_levels[:] = 0
            continue
        ends = np.array([low, high], np.int32).view(np.float32)
        step = max((ends[1] - ends[0]) / np.float32(255), TINY)
        lowest = np.rint(ends[1] / step) - np.float32(255)
        header[row, 0], header[row, 1] = step, lowest
        for i in range(entries.size):
            level = np.int32(np.rint(entries[i] / step) - lowest)
            row_levels[i] = np.uint8(min(max(level, np.int32(0)), np.int32(255)))


@compiled("void(float32[:, ::1], uint8[:, ::1], float32[:, ::1])")
def minmax_decode(header, levels, x):
    for row in range(x.shape[0]):
        entries, row_levels = x[row], levels[row]
        step, lowest = header[row, 0], header[row, 1]
        for i in range(entries.size):
            entries[i] = (np.float32(row_levels[i]) + lowest) * step


@compiled("void(float32[:, ::1], float32[:, ::1], uint8[:, ::1])", fastmath={"reassoc"})
def sign_encode(x, header, levels):
    """Writes header [buckets, 1], the mean magnitude, and levels [buckets, width / 8], first entry in the low bit."""
    for row in range(x.shape[0]):
        entries, row_levels = x[row], levels[row]
        total = np.float32(0)
        for i in range(entries.size):
            total += abs(entries[i])
        header[row, 0] = total / np.float32(entries.size)
        for byte in range(row_levels.size):
            eight, bits = entries[8 * byte : 8 * byte + 8], np.uint8(0)
            for i in range(8):
                bits |= np.uint8(eight[i] >= 0) << i
            row_levels[byte] = bits


@compiled("void(float32[:, ::1], uint8[:, ::1], float32[:, ::1])")
def sign_decode(header, levels, x):
    for row in range(x.shape[0]):
        entries, row_levels, scale = x[row].view(np.int32), levels[row], header[row].view(np.int32)[0]
        for byte in range(row_levels.size):
            eight, bits = entries[8 * byte : 8 * byte + 8], np.int32(row_levels[byte])
            for i in range(8):
                eight[i] = scale ^ ((~bits >> i) & 1) << 31  # the sign of a float is its highest bit


@compiled("void(float32[:, ::1], float32[:, ::1])")
def largest(x, header):
    """Writes header [buckets, 1], the largest magnitude: inf or nan if the bucket holds one."""
    for row in range(x.shape[0]):
        bits, most = x[row].view(np.int32), np.int32(0)
        for i in range(bits.size):
            most = max(most, np.int32(bits[i] & MAGNITUDE))
        header.view(np.int32)[row, 0] = most


@compiled("void(float32, float32[:, ::1], float32[:, ::1], float32[:, ::1], uint8[:, ::1])")
def qsgd_encode(most, norm, noise, x, levels):
    """Writes levels [buckets, width] from 0 to 2 `most`, where `most` means zero.

    `noise` [buckets, width], uniform in [0, 1), decides whether an entry is rounded up or down.
    """
    for row in range(x.shape[0]):
        entries, random, row_levels, whole = x[row], noise[row], levels[row], max(norm[row, 0], TINY)
        finite = whole < np.inf
        for i in range(entries.size if finite else 0):
            level = np.floor(entries[i] / whole * most + random[i])
            row_levels[i] = np.uint8(np.int32(min(max(level, -most), most) + most))
        if not finite:
            row_levels[:] = np.uint8(most)


@compiled("void(float32, float32[:, ::1], uint8[:, ::1], float32[:, ::1])")
def qsgd_decode(most, norm, levels, x):
    for row in range(x.shape[0]):
        entries, row_levels, whole = x[row], levels[row], norm[row, 0]
        for i in range(entries.size):
            entries[i] = (np.float32(row_levels[i]) - most) / most * whole
