"""`repro` in a process of its own that need not import torch anew: a fork of the server that conftest.py starts.

It is a real command line in a new process, for tests of what a command does and says. Those of how a process starts, of
signals, and of what is imported start Python itself.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from repro import cli

PATIENCE = 120  # seconds


def repro(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `repro WORDS` leaves: its exit code, and what it wrote. Raises TimeoutExpired."""
    with tempfile.TemporaryDirectory() as folder:
        texts = [Path(folder, name) for name in ("out", "err")]
        arguments = (words, cwd, {**os.environ, **environment}, texts)
        process = multiprocessing.get_context("forkserver").Process(target=_call, args=arguments)
        process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(words, PATIENCE)
        return subprocess.CompletedProcess(words, process.exitcode, *(path.read_text() for path in texts))


def _call(words: tuple[str, ...], cwd: Path, environment: dict[str, str], texts: list[Path]) -> None:
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
    cli.main()
