"""Derives a seed for every purpose: this suite never draws from a process-wide generator, so ranks may be threads."""

from __future__ import annotations

import hashlib


def derive(seed: int, *purpose: str | int) -> int:
    """Returns a 63-bit seed, a pure function of `seed` and `purpose`, e.g. `derive(1, "shuffle", epoch)`.

    Different purposes give independent streams; equal ones give the same bits in threads, processes and clusters.
    """
    text = "/".join(str(word) for word in (seed, *purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
