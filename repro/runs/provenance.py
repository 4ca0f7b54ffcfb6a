"""Records where a result came from: command, code, versions and machine."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repro.children import usable_cores
from repro.cluster import environment
from repro.runs import machine

MACHINE = (  # what seconds depend on
    "host", "platform", "cpu", "cpus", "processor", "rates", "allocator", "gpus", "device",
)  # fmt: skip
BFLOAT16 = "bfloat16"  # the key for which arithmetic of it a run had; old folders do not say
CODE = (".", "../conf", "../pyproject.toml")  # what a run's result comes from, as git names it from the package
PACKAGES = ("torch", "torchvision", "numpy", "numba", "hydra-core", "wandb", "scikit-learn")


def describe(device: str, data: str) -> dict[str, Any]:
    """Returns everything that is known before the first step. Of the environment only the SLURM job enters it."""
    return {
        "argv": shlex.join(["repro", *sys.argv[1:]]),
        "git": own_code(),
        "versions": {"python": platform.python_version(), **versions()},
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpu": cpu(),
        "threads": threads(),
        "cpus": usable_cores(),
        "processor": machine.processor(),
        "rates": machine.rates(),
        "allocator": machine.allocator(),
        "gpus": gpus(),
        "device": device,
        "data": data,
        **({"job": job} if (job := environment.start()) else {}),
    }


def of_rank(device: str) -> dict[str, Any]:
    """Returns on what a rank's rounding depends, and where it is."""
    return {
        "host": socket.gethostname(),
        "processor": machine.processor(),
        "threads": threads(),
        "device": device.partition(":")[0],
        "gpus": gpus(),
    }


def of_ranks(each: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns what `of_rank` gave on all ranks: alike ones are one entry, whose `ranks` are their numbers."""
    found: list[dict[str, Any]] = []
    for number, one in enumerate(each):
        entry = next((entry for entry in found if entry | one == entry), None)
        if entry is None:
            found.append(entry := {"ranks": [], **one})
        entry["ranks"].append(number)
    return found


def rounds_unlike(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Returns what to say where a session may not go on to the bit, as sums round in another way; "" elsewhere."""
    other = [
        text
        for text, own in (
            ("device", [_device(said) for said in (before, now)]),
            ("GPU", [_gpu_names(said) for said in (before, now)]),
            ("processor", [said.get("processor") for said in (before, now)]),
            ("number of threads", [said.get("threads") for said in (before, now)]),
            ("arithmetic of bfloat16", [said.get(BFLOAT16) for said in (before, now)]),
            ("torch", [_torch(said.get("versions")) for said in (before, now)]),
            ("device, processor or number of threads on other ranks", [_other_ranks(said) for said in (before, now)]),
        )
        if None not in own and own[0] != own[1]
    ]
    return f" (with another {' and another '.join(other)}, which may round unlike)" if other else ""


def _device(said: dict[str, Any]) -> str | None:
    """Returns cpu or cuda; of a rank's place on its machine nothing depends."""
    device = said.get("device")
    return device.partition(":")[0] if isinstance(device, str) else None


def _gpu_names(said: dict[str, Any]) -> set[str] | None:
    """Returns the kinds of GPU of a session on GPUs; None of another."""
    names = said.get("gpus")
    return set(map(str, names)) if _device(said) == "cuda" and isinstance(names, list) else None


def _other_ranks(said: dict[str, Any]) -> dict[int, list[Any]] | None:
    """Returns on what the rounding of each rank but the first depends; None of a record that does not say."""
    entries = said.get("ranks")
    try:
        parts = ("processor", "threads", "device", "gpus")
        return {rank: [one[part] for part in parts] for one in entries for rank in one["ranks"] if rank}  # type: ignore[union-attr]
    except (TypeError, KeyError):
        return None


def _torch(versions: Any) -> Any:
    return versions.get("torch") if isinstance(versions, dict) else None


def of_machine(record: dict[str, Any]) -> dict[str, Any]:
    """Returns what a record says of its machine."""
    return {name: record[name] for name in MACHINE if name in record}


@functools.cache
def own_code() -> dict[str, Any] | None:
    """Returns what `git` says of this suite at the first call of this process.

    A sweep goes on for days with the code that it began with, whatever is committed in the meantime.
    """
    return git(Path(__file__).parents[1])


def git(package: Path) -> dict[str, Any] | None:
    """Returns the commit and whether code or configurations differ from it; results and logs beside them do not count.

    None unless the repository holds the package itself.
    """

    def ask(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(package), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        if not ask("ls-files", "cli.py"):
            return None
        changed = ask("status", "--porcelain", "--", *CODE)
        return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(changed)}
    except (OSError, subprocess.SubprocessError):
        return None


def version() -> str:
    """Returns the versions that a report of a defect needs: of this suite with its commit, of Python, and of torch."""
    try:
        own = importlib.metadata.version("repro")
    except importlib.metadata.PackageNotFoundError:
        own = "of a checkout that is not installed"
    held = own_code()
    commit = f" (commit {held['commit'][:10]}{', changed since' if held['dirty'] else ''})" if held else ""
    return f"repro {own}{commit}, Python {platform.python_version()}, torch {versions().get('torch', 'not installed')}"


@functools.cache
def versions() -> dict[str, str]:
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def cpu() -> str:
    """Returns the processor's model name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def threads() -> int | None:
    """Returns how many threads of this rank share an operation; None before torch is loaded."""
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


def gpus() -> list[str]:
    torch = sys.modules.get("torch")  # a run has imported it; this is not worth importing it for
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
