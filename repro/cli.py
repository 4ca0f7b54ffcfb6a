"""The command line: parse, call, print.

A command lives in repro/commands/NAME.py and is found there; nothing is edited here to add one. The file has

    def register(app: typer.Typer) -> None:    # app.command()(function), or app.add_typer(group, name=...)

and imports typer and the standard library at its top; everything else inside the function that needs it, so
that `repro --help` stays fast. Below its first line a command's help holds examples that can be pasted, after
a line with a lone \\b, which keeps their line breaks. Raise ConfigError and RunError; they are printed here.
"""

from __future__ import annotations

import atexit
import errno
import importlib
import os
import pkgutil
import sys
from typing import NoReturn

import typer

from repro import commands

FIRST = ("run", "data")  # in this order at the top of the help

app = typer.Typer(
    help="gTop-k S-SGD made repeatable: train with dense, Top-k and gTop-k, count bytes, draw figures.\n\n"
    "Begin with:  repro run experiment=quickstart",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def names() -> list[str]:
    found = sorted(module.name for module in pkgutil.iter_modules(commands.__path__))
    return sorted(found, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


for _name in names():
    _module = importlib.import_module(f"repro.commands.{_name}")
    if hasattr(_module, "register"):  # a file without it is a part of another command
        _module.register(app)


def main() -> None:
    ended: list[int] = []
    atexit.register(_leave, ended)  # registered first, it is called last
    try:
        _call()
        ended.append(0)
    except SystemExit as end:
        ended.append(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise


def _leave(ended: list[int]) -> None:
    """End the process as it is: with torch, to take the interpreter apart takes a second (mypy leaves so too)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended[0] if ended else 1)


def _call() -> None:
    try:
        app(prog_name="repro")
    except OSError as error:
        _stop(_explain(error), 1)
    except Exception as error:
        from repro.schema import ConfigError, RunError

        if isinstance(error, ConfigError):
            _stop(str(error), 2)
        if isinstance(error, RunError):
            _stop(str(error), 1)
        raise  # a defect of this suite: its traceback is wanted


def _explain(error: OSError) -> str:
    what = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what}. Make room, or name another place with results=FOLDER; the same command then goes on."
    return what


def _stop(message: str, code: int) -> NoReturn:
    print(f"repro: {message}", file=sys.stderr)
    raise SystemExit(code)
