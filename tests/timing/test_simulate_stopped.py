"""A simulation that is ended leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def children(pid: int) -> list[int]:
    own = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in own.read_text().split()] if own.exists() else []


def gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_its_pool_ends_with_it() -> None:
    """Ended by SIGTERM, as by `timeout`, its workers waited for ever for a parent that was gone."""
    words = [sys.executable, "-m", "repro", "simulate", "model=resnet50", "algo=topk", "nodes=1024"]
    run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until, found = time.monotonic() + 60, list[int]()
    while not found and run.poll() is None and time.monotonic() < until:
        found = children(run.pid)
    assert found, "it was done, or did not begin"
    os.kill(run.pid, signal.SIGTERM)
    run.wait()
    until = time.monotonic() + 20
    while not all(map(gone, found)) and time.monotonic() < until:
        time.sleep(0.1)
    assert all(map(gone, found))
