"""The loops of `quantize.py` over CPU memory, compiled by numba: a row for each bucket.

Floats are compared as integers where a loop looks for the least and the largest: that becomes vector instructions,
and what is not a number shows as larger than infinity instead of being passed over.
"""

from __future__ import annotations

import numpy as np

from repro.kernels import MAGNITUDE, compiled

INFINITY = np.int32(0x7F800000)
TINY = np.float32(np.finfo(np.float32).tiny)


@compiled("void(float32[:, ::1], float32[:, ::1], uint8[:, ::1])")
def minmax_encode(x, header, levels):
    """header [buckets, 2]: the step and the lowest level; levels [buckets, width]: 0 to 255."""
    for row in range(x.shape[0]):
        entries, own = x[row], levels[row]
        bits = entries.view(np.int32)
        low = high = np.int32(0)  # in the order of the floats; zero is in the range
        for i in range(bits.size):
            key = bits[i] ^ ((bits[i] >> 31) & MAGNITUDE)
            low, high = min(low, key), max(high, key)
        low ^= (low >> 31) & MAGNITUDE
        if high >= INFINITY or (low & MAGNITUDE) >= INFINITY:
            header[row] = np.nan
            own[:] = 0
            continue
        ends = np.array([low, high], np.int32).view(np.float32)
        step = max((ends[1] - ends[0]) / np.float32(255), TINY)
        lowest = np.rint(ends[1] / step) - np.float32(255)
        header[row, 0], header[row, 1] = step, lowest
        for i in range(entries.size):
            level = np.int32(np.rint(entries[i] / step) - lowest)
            own[i] = np.uint8(min(max(level, np.int32(0)), np.int32(255)))


@compiled("void(float32[:, ::1], uint8[:, ::1], float32[:, ::1])")
def minmax_decode(header, levels, x):
    for row in range(x.shape[0]):
        entries, own = x[row], levels[row]
        step, lowest = header[row, 0], header[row, 1]
        for i in range(entries.size):
            entries[i] = (np.float32(own[i]) + lowest) * step


@compiled("void(float32[:, ::1], float32[:, ::1], uint8[:, ::1])", fastmath={"reassoc"})
def sign_encode(x, header, levels):
    """header [buckets, 1]: the mean magnitude; levels [buckets, width / 8]: the lowest bit is the first entry's."""
    for row in range(x.shape[0]):
        entries, own = x[row], levels[row]
        total = np.float32(0)
        for i in range(entries.size):
            total += abs(entries[i])
        header[row, 0] = total / np.float32(entries.size)
        for byte in range(own.size):
            eight, bits = entries[8 * byte : 8 * byte + 8], np.uint8(0)
            for i in range(8):
                bits |= np.uint8(eight[i] >= 0) << i
            own[byte] = bits


@compiled("void(float32[:, ::1], uint8[:, ::1], float32[:, ::1])")
def sign_decode(header, levels, x):
    for row in range(x.shape[0]):
        entries, own, scale = x[row].view(np.int32), levels[row], header[row].view(np.int32)[0]
        for byte in range(own.size):
            eight, bits = entries[8 * byte : 8 * byte + 8], np.int32(own[byte])
            for i in range(8):
                eight[i] = scale ^ ((~bits >> i) & 1) << 31  # the sign of a float is its highest bit


@compiled("void(float32[:, ::1], float32[:, ::1])")
def largest(x, header):
    """header [buckets, 1]: the largest magnitude, or what is not finite."""
    for row in range(x.shape[0]):
        bits, most = x[row].view(np.int32), np.int32(0)
        for i in range(bits.size):
            most = max(most, np.int32(bits[i] & MAGNITUDE))
        header.view(np.int32)[row, 0] = most


@compiled("void(float32, float32[:, ::1], float32[:, ::1], float32[:, ::1], uint8[:, ::1])")
def qsgd_encode(most, norm, noise, x, levels):
    """levels [buckets, width]: 0 to 2 `most`, where `most` is zero; noise [buckets, width] in [0, 1) rounds."""
    for row in range(x.shape[0]):
        entries, random, own, whole = x[row], noise[row], levels[row], max(norm[row, 0], TINY)
        finite = whole < np.inf
        for i in range(entries.size if finite else 0):
            level = np.floor(entries[i] / whole * most + random[i])
            own[i] = np.uint8(np.int32(min(max(level, -most), most) + most))
        if not finite:
            own[:] = np.uint8(most)


@compiled("void(float32, float32[:, ::1], uint8[:, ::1], float32[:, ::1])")
def qsgd_decode(most, norm, levels, x):
    for row in range(x.shape[0]):
        entries, own, whole = x[row], levels[row], norm[row, 0]
        for i in range(entries.size):
            entries[i] = (np.float32(own[i]) - most) / most * whole
