"""A child process that has mounts of its own, which go with it."""

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NEW_MOUNTS, PRIVATE = 0x20000, 0x4000 | 1 << 18  # CLONE_NEWNS; MS_REC | MS_PRIVATE
LIBC = ctypes.CDLL(None, use_errno=True)
INIT_ANSWER = struct.Struct("<IiQ IIII HHIIHH 8I")  # linux/fuse.h: a header, and what the kernel may ask for


def holds(body: Callable[[], bool]) -> bool:
    """Whether `body` returns true in a child of this process. Skips the test where it may not have mounts."""
    if os.geteuid():
        pytest.skip("only root may mount")
    child = os.fork()
    if child == 0:
        code = 2
        try:
            if LIBC.unshare(NEW_MOUNTS):
                code = 3
            else:
                mount("none", Path("/"), flags=PRIVATE)
                code = 0 if body() else 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 3:
        pytest.skip("no mounts of its own here")
    assert code in (0, 1), "it raised an error"
    return code == 0


def mount(source: str, target: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = source.encode(), os.fsencode(target), kind.encode()
    if LIBC.mount(*words, ctypes.c_ulong(flags), options.encode()):
        raise OSError(ctypes.get_errno(), f"mount {kind} on {target}")


@contextmanager
def silent(folder: Path) -> Iterator[int]:
    """Mounts a file system in user space that answers to nothing while inside; gives where its requests can be read.

    Whoever waits for an answer then could not even end.
    """
    device = os.open("/dev/fuse", os.O_RDWR)
    mount("silent", folder, "fuse", options=f"fd={device},rootmode=40000,user_id=0,group_id=0")
    unique = struct.unpack_from("<IIQ", os.read(device, 1 << 16))[2]  # of the first request, how to talk
    os.write(device, INIT_ANSWER.pack(INIT_ANSWER.size, 0, unique, 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, *[0] * 8))
    try:
        yield device
    finally:
        os.close(device)
