"""Parses the command line, calls a command, and prints its errors.

A command lives in repro/commands/NAME.py and is found there; nothing is edited here to add one. The file has

    def register(app: typer.Typer) -> None:    # app.command()(function), or app.add_typer(group, name=...)

and imports typer and the standard library at its top; everything else inside the function that needs it, so
that `repro --help` stays fast. Below its first line a command's help holds examples that can be pasted, after
a line with a lone \\b, which keeps their line breaks. Raise ConfigError and RunError; they are printed here.
"""

from __future__ import annotations

import atexit
import importlib
import locale
import os
import pkgutil
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Annotated

import typer

from repro import commands, whole_files
from repro.cluster import streams

FIRST = ("run", "data")  # in this order at the top of the help
STOPPED = 130  # the exit code of a run that was told to stop
SHOW_CURSOR = "\x1b[?25h"  # which a progress bar hides

app = typer.Typer(
    help="gTop-k S-SGD made repeatable: train with dense, Top-k and gTop-k, count bytes, draw figures.\n\n"
    "Begin with:  repro run experiment=quickstart",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def names() -> list[str]:
    modules = sorted(module.name for module in pkgutil.iter_modules(commands.__path__))
    return sorted(modules, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


def _version(asked: bool) -> None:
    if asked:
        from repro.runs import provenance

        typer.echo(provenance.version())
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


for _name in names():
    _module = importlib.import_module(f"repro.commands.{_name}")
    if hasattr(_module, "register"):  # a file without it is a part of another command
        _module.register(app)


def main() -> None:
    ended: list[int] = []
    atexit.register(_leave, ended)  # registered first, it is called last
    _in_utf8()
    streams.outlive_readers()
    code = _call(_noting_ctrl_c())
    lost = streams.lost_output()
    if lost is not None and code == 0:
        print(f"repro: not all of the output could be written: {lost}", file=sys.stderr)
        code = 1
    ended.append(code)
    if code == STOPPED and any(not thread.daemon for thread in threading.enumerate()[1:]):
        if sys.stderr.isatty():
            sys.stderr.write(SHOW_CURSOR)
        _leave(ended)  # at once: Python would wait for the threads of ranks
    raise SystemExit(code)


def _in_utf8() -> None:
    """Restarts with UTF-8 where the locale has another encoding: files are written alike on every machine."""
    if locale.getencoding().lower() != "utf-8" and not sys.flags.utf8_mode and "utf8" not in sys._xoptions:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606  (this very command)


def _leave(ended: list[int]) -> None:
    """Ends the process without Python's clean-up, which takes a second once torch is loaded (mypy does so too)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended[0] if ended else 1)


def _noting_ctrl_c() -> list[int]:
    """Returns a list that Ctrl-C lengthens, where it is not ignored or handled yet."""
    told: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        told.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)
    return told


def _call(told: Sequence[int] = ()) -> int:
    """Runs the command and returns the exit code; `told` has something once Ctrl-C was typed."""
    try:
        _refuse_a_tilde(sys.argv[1:])
        app(prog_name="repro")
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        if told:  # libraries that were being loaded make other errors of it
            return STOPPED
        return _explain(error)


def _explain(error: Exception) -> int:
    """Says what went wrong and returns the exit code; a defect of this suite is raised."""
    match error:
        case OSError():
            return _say(whole_files.explain(error), 1)
        case MemoryError():
            return _say(f"out of memory: {error}" if str(error) else "out of memory", 1)
        case _:
            from repro.config.schema import ConfigError, RunError

            if isinstance(error, ConfigError | RunError):
                return _say(str(error), 2 if isinstance(error, ConfigError) else 1)
            raise error  # its traceback is wanted


def _refuse_a_tilde(words: list[str]) -> None:
    """Refuses --root=~/data, of which the shell leaves a folder called ~; `--root ~/data` it writes out."""
    for word in words:
        option, _, value = word.partition("=")
        if option.startswith("--") and value.startswith("~/"):
            from repro.config.schema import ConfigError

            raise ConfigError(f"{word}: the shell leaves ~ as it is behind =. Type {option} {value}.")


def _say(message: str, code: int) -> int:
    print(f"repro: {message}", file=sys.stderr)
    return code
