"""Makes processes of a pool end with the one that started them: killed, it cannot tell them to."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent(parent: int) -> None:
    """Has the kernel kill this process when `parent` is gone, however it went. Does nothing where it is not Linux."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it went before
            os._exit(1)
