"""Gives the bytes of a message of k sparse pairs in each wire format; without torch, for formulas and figures.

`pair_formats.py` says what the parts of a message are. Sizes follow from k, m and the bytes of a value, so that both
ends of a message know them before it comes.
"""

from __future__ import annotations

from collections.abc import Callable

BLOCK = 64  # values that share a smallest and a largest magnitude
CODE_BITS = 7  # per value: a level and, above it, the sign


def float_bytes(k: int, itemsize: int) -> int:
    return _whole(k * itemsize, 4)


def block_bytes(k: int) -> int:
    """Returns the bytes of k values in blocks: two bfloat16 ends a block, then the codes."""
    return 4 * (blocks(k) + words(k * CODE_BITS))


VALUES: dict[str, Callable[[int, int], int]] = {  # bytes of k values that have `itemsize` bytes before
    "gaps": float_bytes,
    "gaps-bf16": lambda k, _: float_bytes(k, 2),
    "packed": lambda k, _: block_bytes(k),
}
WIRES = ("pairs", *VALUES)
LOSSLESS = ("pairs", "gaps")


def message_bytes(wire: str, k: int, parameters: int, itemsize: int = 4) -> int:
    """Returns the bytes of a message with room for k pairs of m = `parameters`, in the format that `wire` names."""
    if wire == "pairs":
        return k * (4 + itemsize)
    return gap_bytes(VALUES[wire](k, itemsize), k, parameters, itemsize)


def gap_bytes(values: int, k: int, parameters: int, itemsize: int) -> int:
    """Returns the bytes of a message whose values take `values` bytes and whose indices are Elias-Fano codes."""
    return _whole(values + 4 * sum(index_words(k, parameters)), itemsize)


def most_bytes(wire: str, k: int, parameters: int, parts: int) -> int:
    """Returns the most bytes that `parts` messages take which hold k pairs together, however they are divided.

    Elias-Fano codes take most where all parts are equally long; each of a part's sections is rounded up to a word.
    """
    if wire == "pairs" or parts < 2:
        return message_bytes(wire, k, parameters)
    return parts * (message_bytes(wire, -(-k // parts), parameters) + 16)


def low_bits(k: int, parameters: int) -> int:
    """Returns floor(log2(m / k)): one more low bit would cost k bits and save fewer zeros than that."""
    return max(0, (parameters // max(k, 1)).bit_length() - 1)


def index_words(k: int, parameters: int) -> tuple[int, int]:
    """Returns how many words the low bits and the unary gaps take."""
    if k == 0:
        return 0, 0
    low = low_bits(k, parameters)
    return words(k * low), words(k + (max(parameters - 1, 0) >> low))


def blocks(n: int) -> int:
    return -(-n // BLOCK)


def words(bits: int) -> int:
    return -(-bits // 32)


def _whole(size: int, unit: int) -> int:
    return -(-size // unit) * unit
