"""What it takes to encode and to decode sparse pairs in each wire format, beside a copy of the same pairs.

    python benchmarks/pair_formats.py [--pairs 25000] [--parameters 25600000] [--repeats 500] [--out FILE.jsonl]

One thread. Each repeat times all formats once, so that ratios are of the same moments; what is printed are medians
over the repeats of this thread's CPU time, which other programs lengthen less than they do the wall clock's, and the
least, which is nearest to a core that nobody else uses.
The committed ones are in results/speed/pair_formats.jsonl, from which docs/algorithms.md has its table; a file keeps
what other processors took.
`encode` tells the sender what rounding took, so a format that rounds decodes its own message there.
"""

import argparse
import functools
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from repro.compression.pair_formats import FORMATS, lost
from repro.compression.sparse import Sparse, pack, select
from repro.json_text import json_text
from repro.report import summaries
from repro.runs import machine
from repro.tables import Row, to_markdown
from repro.whole_files import write_whole


def selection(parameters: int, k: int) -> Sparse:
    """The k largest of a normally distributed vector."""
    return select(torch.randn(parameters, generator=torch.Generator().manual_seed(0)), k)


def cpu_ms(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return 1000 * (time.thread_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=25_000)
    parser.add_argument("--parameters", type=int, default=25_600_000)
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    k, m, dtype = options.pairs, options.parameters, torch.float32
    sparse, encoded = selection(m, k), {}
    copied = pack(sparse, k)
    work: dict[tuple[str, str], Callable[[], object]] = {("copy", ""): copied.clone}
    for name, wire_format in FORMATS.items():
        encoded[name] = wire_format.encode(sparse, k, m)
        work[name, "encode"] = functools.partial(wire_format.encode, sparse, k, m)
        work[name, "decode"] = functools.partial(wire_format.decode, encoded[name].wire, k, m, dtype)
    taken: dict[tuple[str, str], list[float]] = {what: [] for what in work}
    for _ in range(options.repeats):
        for what, run in work.items():
            taken[what].append(cpu_ms(run))
    copy_ms = median(taken["copy", ""])
    rows: list[Row] = []
    for name, (wire, received) in encoded.items():
        encode, decode = taken[name, "encode"], taken[name, "decode"]
        both = sorted(a + b for a, b in zip(encode, decode, strict=True))
        rows.append(
            {
                "format": name,
                "bytes a pair": round(wire.nbytes / k, 3),
                "encode ms": round(median(encode), 4),
                "decode ms": round(median(decode), 4),
                "both ms": round(median(both), 4),
                "least ms": round(both[0], 4),
                "x pairs": round(median(both) / (rows[0]["both ms"] if rows else median(both)), 1),
                "x copy": round(median(both) / copy_ms, 1),
                "lost": float(lost(sparse, received).value.norm() / sparse.value.norm()),
            }
        )
    print(f"{k:,} pairs of {m:,}, {options.repeats} repeats; a copy of the pairs takes {copy_ms:.4f} ms\n")
    print(to_markdown(rows))
    if options.out is not None:
        same = {
            "pairs": k,
            "parameters": m,
            "repeats": options.repeats,
            "copy ms": copy_ms,
            "processor": machine.processor(),
        }
        before = summaries.read_json(options.out)["rows"] if options.out.exists() else []
        others = [row for row in before if row["processor"] != same["processor"]]
        write_whole(options.out, "".join(f"{json_text(row)}\n" for row in [*others, *(row | same for row in rows)]))


if __name__ == "__main__":
    main()
