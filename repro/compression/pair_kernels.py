"""Encodes and decodes `pair_formats.py`'s bit streams, indices and blocks of values with loops compiled by numba.

A bit stream is an array of 32-bit words; the lowest bit of the first word comes first. As in `sparse_kernels.py`,
an item is written first and counted after, without a branch to mispredict. Constants are int32, as an int64
would halve the width of vector instructions.
"""

from __future__ import annotations

import numpy as np

from repro.compression.codec_kernels import TINY
from repro.compression.pair_sizes import BLOCK, CODE_BITS
from repro.compression.sparse_kernels import MAGNITUDE, ONE, START, compiled

if (BLOCK, CODE_BITS) != (64, 7):  # numba's cache of these loops is made anew where this file changes, not that one
    raise RuntimeError("pair_sizes.py has other sizes than pair_kernels.py was written for: change them here too")
LEVEL_BITS = np.int32(CODE_BITS - 1)
LEVEL = np.int32((1 << LEVEL_BITS) - 1)
SIGN = np.int32(1 << LEVEL_BITS)
MOST = np.float32(LEVEL)
NOT_A_NUMBER = np.int32(0x7FFF0000)  # the largest that can be rounded up to a bfloat16 without overflow
HALF, BELOW_HALF, SIGN_SHIFT = np.int32(16), np.int32(0xFFFF), np.int32(31)
WORD, WORD_SHIFT, IN_WORD = np.uint64(32), np.uint64(5), np.uint64(31)

EIGHT = 8  # codes that are whole bytes together
OCTET = 8  # bits decoded at once
_octets = [[bit for bit in range(OCTET) if octet >> bit & 1] for octet in range(1 << OCTET)]
ONES = np.array([len(ones) for ones in _octets], np.uint64)
ZEROS_BEFORE = np.zeros((1 << OCTET, OCTET), np.int32)  # before each 1 of an octet
for _octet, _ones in enumerate(_octets):
    ZEROS_BEFORE[_octet, : len(_ones)] = [bit - before for before, bit in enumerate(_ones)]


@compiled("void(int32[::1], int64, int32[::1])")
def put(codes, width, words):
    """Writes the `width` low bits (0 to 32) of each code, one after the other, into zeroed words."""
    out = words.view(np.uint32)
    bits, mask = np.uint64(width), (ONE << np.uint64(width)) - ONE
    waiting = START  # bits of the current word and of the next
    for i in range(codes.size if width > 0 else 0):
        at = np.uint64(i) * bits
        waiting |= (np.uint64(codes[i]) & mask) << (at & IN_WORD)
        out[at >> WORD_SHIFT] = np.uint32(waiting)
        waiting >>= ((at & IN_WORD) + bits) & WORD  # by a whole word, or not at all
    if waiting > 0:
        out[np.uint64(codes.size) * bits >> WORD_SHIFT] = np.uint32(waiting)


@compiled("void(int32[::1], int64, int32[::1])")
def get(words, width, codes):
    """Inverts `put` for `width` of 1 or more; at least one more word must follow the stream."""
    source, bits, mask = words.view(np.uint32), np.uint64(width), (ONE << np.uint64(width)) - ONE
    for i in range(codes.size):
        at = np.uint64(i) * bits
        word = at >> WORD_SHIFT
        two = np.uint64(source[word]) | np.uint64(source[word + ONE]) << WORD
        codes[i] = np.int32((two >> (at & IN_WORD)) & mask)


@compiled("void(int32[::1], int32[::1])")
def put_codes(codes, words):
    """Does what `put` does with a width of CODE_BITS, which is 7: eight codes are seven bytes."""
    out, whole = words.view(np.uint8), codes.size // EIGHT
    for eight in range(whole):
        joined = START
        for i in range(EIGHT):
            joined |= np.uint64(codes[EIGHT * eight + i]) << np.uint64(CODE_BITS * i)
        for i in range(CODE_BITS):
            out[CODE_BITS * eight + i] = np.uint8(joined >> np.uint64(8 * i))
    joined, rest = START, codes.size - EIGHT * whole
    for i in range(rest):
        joined |= np.uint64(codes[EIGHT * whole + i]) << np.uint64(CODE_BITS * i)
    for i in range(rest):  # as many bytes as codes: the last has 7 bits or fewer in them
        out[CODE_BITS * whole + i] = np.uint8(joined >> np.uint64(8 * i))


@compiled("void(int32[::1], int32[::1])")
def get_codes(words, codes):
    """Inverts `put_codes`; at least one more word must follow the stream."""
    source, code = words.view(np.uint8), np.uint64((1 << CODE_BITS) - 1)
    whole = codes.size // EIGHT
    for eight in range(whole):
        joined = START
        for i in range(EIGHT):
            joined |= np.uint64(source[CODE_BITS * eight + i]) << np.uint64(8 * i)
        for i in range(EIGHT):
            codes[EIGHT * eight + i] = np.int32(joined >> np.uint64(CODE_BITS * i) & code)
    joined = START
    for i in range(codes.size - EIGHT * whole):
        joined |= np.uint64(source[CODE_BITS * whole + i]) << np.uint64(8 * i)
    for i in range(codes.size - EIGHT * whole):
        codes[EIGHT * whole + i] = np.int32(joined >> np.uint64(CODE_BITS * i) & code)


@compiled("boolean(int32[::1], int64, int64, int32[::1], int64, int64)")
def put_index(index, width, parameters, words, low, steps):
    """Writes each index's `width` low bits from words[low] on, and in unary the growth of its high part from steps on.

    That is zeros, then a 1. The words must be zeroed. Returns False and writes nothing unless indices ascend, distinct,
    within 0 to parameters - 1.
    """
    wrong = index.size > 0 and (index[0] < 0 or index[-1] >= parameters)
    for i in range(1, index.size):
        wrong |= index[i] <= index[i - 1]
    if wrong:
        return False
    out, bits = words[steps:].view(np.uint32), np.uint64(width)
    ones = last = START  # the word of the last 1 is kept, so that it need not be read again
    for i in range(index.size):
        place = (np.uint64(index[i]) >> bits) + np.uint64(i)
        word = place >> WORD_SHIFT
        ones = ones * np.uint64(word == last) | ONE << (place & IN_WORD)
        out[word] = np.uint32(ones)
        last = word
    put(index, width, words[low:])
    return True


@compiled("int64(int32[::1], int64, int64, int64, int64, int32[::1])")
def get_index(words, low, steps, width, k, index):
    """Inverts `put_index` and returns how many indices, at most k, were read.

    `index` needs room for k + OCTET, and one more word must follow those of the low bits, as the unary ones do. Each
    octet of these writes eight indices and counts as many as it has ones.
    """
    n, most, octets = START, np.uint64(k), words[steps:].view(np.uint8)
    for i in range(octets.size):
        octet, before = octets[i], np.int32(OCTET * i) - np.int32(n)
        for one in range(OCTET):
            index[n + np.uint64(one)] = before + ZEROS_BEFORE[octet, one]
        n = min(n + ONES[octet], most)
    source, bits, mask = words[low:].view(np.uint32), np.uint64(width), (ONE << np.uint64(width)) - ONE
    for i in range(np.int64(n) if width > 0 else 0):
        at = np.uint64(i) * bits
        word = at >> WORD_SHIFT
        two = np.uint64(source[word]) | np.uint64(source[word + ONE]) << WORD
        index[i] = np.int32(np.uint64(index[i]) << bits | (two >> (at & IN_WORD)) & mask)
    return np.int64(n)


@compiled("void(float32[::1], int16[:, ::1], int32[::1])")
def to_levels(value, ends, codes):
    """Writes ends [blocks, 2], the least and the largest magnitude rounded outward to bfloat16, and codes.

    A code is the sign and the nearest of the 64 levels between both ends.
    """
    bits, pair = value.view(np.int32), np.empty(2, np.int32)
    start_stop = pair.view(np.float32)
    for block in range(ends.shape[0]):
        first, end = block * BLOCK, (block + 1) * BLOCK
        entry_bits, entries, out = bits[first:end], value[first:end], codes[first:end]
        least, largest = MAGNITUDE, np.int32(0)
        for i in range(entry_bits.size):
            magnitude = np.int32(entry_bits[i] & MAGNITUDE)
            least, largest = min(least, magnitude), max(largest, magnitude)
        ends[block, 0], ends[block, 1] = least >> HALF, (min(largest, NOT_A_NUMBER) + BELOW_HALF) >> HALF
        pair[0], pair[1] = np.int32(ends[block, 0]) << HALF, np.int32(ends[block, 1]) << HALF
        start, step = start_stop[0], max((start_stop[1] - start_stop[0]) / MOST, TINY)
        finite = start_stop[1] < np.inf
        for i in range(entry_bits.size if finite else 0):
            level = np.int32(min(np.rint((abs(entries[i]) - start) / step), MOST))
            out[i] = np.int32(level | np.int32(np.int32(entry_bits[i] >> SIGN_SHIFT) & SIGN))
        if not finite:
            out[:] = 0


@compiled("void(int16[:, ::1], int32[::1], float32[::1])")
def from_levels(ends, codes, value):
    """Inverts `to_levels`. A block whose largest magnitude is not finite decodes to nan."""
    bits, pair = value.view(np.int32), np.empty(2, np.int32)
    start_stop = pair.view(np.float32)
    for block in range(ends.shape[0]):
        first, end = block * BLOCK, (block + 1) * BLOCK
        block_codes, entries, out = codes[first:end], value[first:end], bits[first:end]
        pair[0], pair[1] = np.int32(ends[block, 0]) << HALF, np.int32(ends[block, 1]) << HALF
        start, step = start_stop[0], (start_stop[1] - start_stop[0]) / MOST
        step = TINY if step < TINY else step
        for i in range(block_codes.size):
            entries[i] = start + np.float32(np.int32(block_codes[i] & LEVEL)) * step
        for i in range(block_codes.size):
            out[i] |= np.int32(np.int32(block_codes[i] >> LEVEL_BITS) << SIGN_SHIFT)


@compiled("void(float32[::1], int32[::1], int64, float32[::1])")
def put_blocks(value, words, first, received):
    """Writes into zeroed words the ends of the blocks and, from words[first] on, codes; and what these decode to."""
    codes = np.empty(value.size, np.int32)
    ends = words[: (value.size + BLOCK - 1) // BLOCK].view(np.int16).reshape(-1, 2)
    to_levels(value, ends, codes)
    put_codes(codes, words[first:])
    from_levels(ends, codes, received)


@compiled("void(int32[::1], int64, float32[::1])")
def get_blocks(words, first, value):
    """Inverts `put_blocks`; at least one more word must follow the codes."""
    codes = np.empty(value.size, np.int32)
    ends = words[: (value.size + BLOCK - 1) // BLOCK].view(np.int16).reshape(-1, 2)
    get_codes(words[first:], codes)
    from_levels(ends, codes, value)
