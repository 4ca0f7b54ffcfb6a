"""`repro` in a process of its own that need not import torch anew: a fork of the server that conftest.py starts.

It is a real command line in a new process, for tests of what a command does and says. Those of how a process starts, of
signals, and of what is imported start Python itself.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from repro import cli

PATIENCE = 120  # seconds


class Started:
    """A process that does `repro WORDS`, by its exit code and what it has written."""

    def __init__(self, words: tuple[str, ...], cwd: Path, environment: dict[str, str], first: Callable[[], None]):
        self.words, self.folder = words, tempfile.TemporaryDirectory()
        self.texts = [Path(self.folder.name, name) for name in ("out", "err")]
        arguments = (words, cwd, environment, self.texts, first)
        self.process = multiprocessing.get_context("forkserver").Process(target=_call, args=arguments)
        self.process.start()

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def kill(self) -> None:
        """Ends it, where it has not ended by itself."""
        self.process.kill()
        self.process.join()
        self.folder.cleanup()

    def over(self, patience: float = PATIENCE) -> tuple[str, str]:
        """What it wrote to stdout and stderr, asked for once. Kills it and raises TimeoutExpired if it goes on."""
        self.process.join(patience)
        if self.process.exitcode is None:
            self.kill()
            raise subprocess.TimeoutExpired(self.words, patience)
        out, err = (path.read_text() for path in self.texts)
        self.folder.cleanup()
        return out, err


def nothing() -> None:
    """Is what most do first."""


def start(*words: str, cwd: Path, first: Callable[[], None] = nothing, **environment: str | None) -> Started:
    """Starts `repro WORDS` after `first`, with these changes of the environment; None takes a variable out of it."""
    changed = {**os.environ, **environment}
    return Started(words, cwd, {name: value for name, value in changed.items() if value is not None}, first)


def repro(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `repro WORDS` leaves: its exit code, and what it wrote. Raises TimeoutExpired."""
    started = start(*words, cwd=cwd, **environment)
    out, err = started.over()
    assert started.returncode is not None
    return subprocess.CompletedProcess(words, started.returncode, out, err)


def _call(
    words: tuple[str, ...], cwd: Path, environment: dict[str, str], texts: list[Path], first: Callable[[], None]
) -> None:
    assert "torch" in sys.modules, "the server was not forked from what conftest.py has imported"
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in enumerate(texts, start=1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, descriptor)
        os.close(file)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = [open(number, "w", closefd=False) for number in (1, 2)]  # noqa: SIM115
    sys.argv = ["repro", *words]
    first()
    cli.main()
