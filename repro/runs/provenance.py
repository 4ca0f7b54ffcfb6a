"""Where a result came from: command, code, versions and machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "torchvision", "numpy", "numba", "hydra-core", "wandb", "scikit-learn")


def describe(device: str, data: str) -> dict[str, Any]:
    """Everything that is known before the first step. No environment variable enters it."""
    return {
        "argv": shlex.join(["repro", *sys.argv[1:]]),
        "git": git(Path(__file__).parent),
        "versions": {"python": platform.python_version(), **versions()},
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpu": cpu(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "gpus": gpus(),
        "device": device,
        "data": data,
    }


def git(package: Path) -> dict[str, Any] | None:
    """Commit and whether files differ from it; None unless the repository holds the package itself."""

    def ask(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(package), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        if not ask("ls-files", Path(__file__).name):
            return None
        return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def cpu() -> str:
    """The processor's model name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def gpus() -> list[str]:
    torch = sys.modules.get("torch")  # a run has it; nothing here is worth importing it
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
