"""Processes of a pool: how many cores there are for them, and their end with the one that started them."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def usable_cores() -> int:
    """Returns the number of cores that this process may use, which may be fewer than there are (SLURM, `taskset`)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def end_with_parent(parent: int) -> None:
    """Has the kernel kill this process when `parent` is gone, however it went. Does nothing where it is not Linux."""
    # a parent that is killed cannot end its pool
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it went before
            os._exit(1)
