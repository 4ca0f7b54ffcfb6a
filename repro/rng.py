"""Seeds for every purpose: no draw of this suite comes from a process-wide generator, so ranks may be threads."""

from __future__ import annotations

import hashlib


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed that is a pure function of `seed` and `purpose`, e.g. `derive(1, "shuffle", epoch)`.

    Distinct purposes give independent streams; the same ones give the same bits with threads, processes and clusters.
    """
    text = "/".join(str(word) for word in (seed, *purpose))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
