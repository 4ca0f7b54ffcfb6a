"""Describes this machine by its processor and by how fast one core is.

The speeds of machines of one name differ by a factor of three, and of one processor family by whether the hypervisor
shares the processor. Results carry both, so that seconds of unlike machines are never pooled.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from repro.json_text import json_text
from repro.waiting import waiting

SECONDS = 0.25  # of each of the four measurements: a second in all
OLD_S = 30 * 86_400.0  # after which what was kept of a boot is removed
SIDE = 512  # of the square matrices: three of them stay in the second-level cache
COPIED = 1 << 26  # bytes, more than caches hold
EXTENSIONS = (  # of the instruction set: those that change how fast a network trains
    "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16",
    "asimd", "sve", "bf16",
)  # fmt: skip
FIELDS = {"vendor_id": "vendor", "cpu family": "family", "model": "model", "model name": "name", "stepping": "stepping"}


def processor() -> dict[str, Any]:
    """Returns vendor, family, model, name and vector extensions of the first core, as the kernel gives them."""
    description: dict[str, Any] = {}
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = (part.strip() for part in line.partition(":"))
        if name in FIELDS:
            description[FIELDS[name]] = value
        elif name in ("flags", "Features"):
            description["extensions"] = [one for one in EXTENSIONS if one in value.split()]
    return description or {"name": platform.processor() or platform.machine()}


def allocator(maps: Path = Path("/proc/self/maps")) -> str | None:
    """Returns the memory allocator that was preloaded in place of the C library's; steps take less time with some."""
    try:
        found = re.search(r"/lib((?:tc|je|mi)malloc)[^/]*\.so", maps.read_text())
    except OSError:
        return None
    return found[1] if found else None


def rates() -> dict[str, float]:
    """Returns one core's GFLOP/s of matrix products in float32 and bfloat16, GB/s of a copy, 1e6 Python steps/s.

    They are measured once per boot and kept in the user's cache, as this takes a second and must not be disturbed: call
    it before ranks start. Processes that start at the same time wait for the one that measures.
    """
    cache = Path(os.path.expanduser("~/.cache/repro")) / f"machine-{_boot()}.json"  # a home may be of many machines
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with open(cache, "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            kept = _read(file.read())
            if kept:
                return kept
            _remove_old(cache.parent)
            with waiting("measuring one core, once per boot", still=True):
                measured = measure()
            file.truncate(0)
            file.write(json_text(measured))
            return measured
    except OSError:  # no home that can be written
        return measure()


def slow_bfloat16(rates: dict[str, float]) -> str | None:
    """Returns what to say before a training in bfloat16 where the processor has no instructions for it, else None."""
    fast, slow = rates["float32_gflops"], rates["bfloat16_gflops"]
    if slow >= fast:
        return None
    return (
        f"precision=bfloat16 is emulated on this processor for networks that read text: {slow:g} GFLOP/s a core, "
        f"where float32 has {fast:g}. Type precision=float32 to train faster."
    )


def measure(seconds: float | None = None) -> dict[str, float]:
    """Measures the rates now; restores this thread's number of torch threads."""
    import torch

    seconds = SECONDS if seconds is None else seconds
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        a = torch.full((SIDE, SIDE), 0.5)
        b = a.bfloat16()
        source, target = torch.zeros(2, COPIED, dtype=torch.uint8)
        flops = 2 * SIDE**3
        measured = {
            "float32_gflops": flops * _per_second(lambda: a @ a, seconds) / 1e9,
            "bfloat16_gflops": flops * _per_second(lambda: b @ b, seconds) / 1e9,
            "copy_gb_per_s": COPIED * _per_second(lambda: target.copy_(source), seconds) / 1e9,
            "python_mops": _per_second(lambda: sum(range(10_000)), seconds) * 1e4 / 1e6,
        }
    finally:
        torch.set_num_threads(threads)
    return {name: float(f"{value:.3g}") for name, value in measured.items()}


def _per_second(action: Callable[[], object], seconds: float) -> float:
    """Returns how often `action` runs in a second, by its fastest repeat: other load only makes it slower."""
    action()
    fastest, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or fastest == float("inf"):
        start = time.perf_counter()
        action()
        fastest = min(fastest, time.perf_counter() - start)
    return 1 / fastest


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def _read(text: str) -> dict[str, float]:
    try:
        kept = json.loads(text)
        return kept if isinstance(kept, dict) else {}
    except ValueError:
        return {}


def _remove_old(folder: Path) -> None:
    """Removes what was kept of boots before this month."""
    for file in folder.glob("machine*.json"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > OLD_S:
                file.unlink()
