"""Lets a run go on when its output has no reader: after `| head -1`, with a closed or full stderr, a lost terminal.

The run folder has everything that is printed, so what cannot be written any more is discarded. For stdout the error is
kept: a command whose result did not reach its file must not report success.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress


class Outliving(io.TextIOWrapper):
    """A text stream that discards its text once a write has failed; `lost` is the error."""

    lost: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.lost = self.lost or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())  # also for libraries that write past Python, and for buffered text
        os.close(nowhere)


def outlive_readers() -> None:
    """Makes stdout and stderr of this process `Outliving`; opens closed ones, as other files could take their place."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    sys.stdout, sys.stderr = _outliving(sys.stdout, 1), _outliving(sys.stderr, 2)


def _outliving(stream: object, descriptor: int) -> io.TextIOWrapper:
    if isinstance(stream, io.TextIOWrapper) and not isinstance(stream, Outliving):
        with suppress(OSError):
            stream.flush()
        # a name of a file need not be UTF-8, and is printed as it is
        errors = "surrogateescape" if stream.errors == "strict" else stream.errors
        return Outliving(
            stream.buffer, stream.encoding, errors, line_buffering=stream.line_buffering or descriptor == 2
        )
    if isinstance(stream, Outliving):
        return stream
    return Outliving(open(descriptor, "wb", closefd=False), "utf-8", line_buffering=True)  # noqa: SIM115


def lost_output() -> str | None:
    """Returns why part of stdout was lost; None where nothing was, or where its reader closed the pipe."""
    sys.stdout.flush()
    lost = sys.stdout.lost if isinstance(sys.stdout, Outliving) else None
    return None if lost is None or lost.errno == errno.EPIPE else str(lost.strerror)
