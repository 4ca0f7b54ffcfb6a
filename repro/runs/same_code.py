"""Tells whether the code of a run's algorithm is still what its folder was trained with.

No run id depends on code, and a change that is not committed leaves the commit in provenance.json as it is.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from repro.config.groups import conf_folder
from repro.config.schema import Config

KEY = "algorithm"  # of provenance.json; not of a machine, so that no summary holds it
PACKAGE = "repro.algorithms"


def digests(config: Config) -> dict[str, str]:
    """Returns the SHA-256 of the algorithm's module, of those beside it that it imports, and of its YAML, by name."""
    modules = set[str]()
    _add_with_imports(config.algo.module, modules)
    if config.algo.corrected:
        _add_with_imports("_corrected", modules)
    found = {}
    for file in (*map(_file, sorted(modules)), conf_folder() / "algo" / f"{config.algo.name}.yaml"):
        with suppress(OSError):
            found[file.name] = _digest(file)
    return found


@functools.cache  # it is loaded once, and a sweep goes on with it for days, whatever is edited in the meantime
def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _add_with_imports(module: str, modules: set[str]) -> None:
    """Adds a module of repro.algorithms and those of its neighbours that it imports, and they; __init__ is none."""
    if module in modules or not _file(module).is_file():
        return
    modules.add(module)
    with suppress(OSError, SyntaxError, ValueError):  # the run itself will say so
        for node in ast.walk(ast.parse(_file(module).read_bytes())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = f"{PACKAGE}.{node.module or ''}".rstrip(".") if node.level else node.module
                names = [f"{base}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                if name.startswith(f"{PACKAGE}."):
                    _add_with_imports(name.split(".")[2], modules)


def _file(module: str) -> Path:
    return Path(__file__).parents[1] / "algorithms" / f"{module}.py"


def changed(record: dict[str, Any], config: Config) -> str:
    """Returns the files that are now other than a session was with which the run in provenance.json was trained.

    "" where there is none. Of files that a session from before they were kept does not name, nothing is known.
    """
    now, other = digests(config), set[str]()
    for session in trained_with(record):
        kept = session.get(KEY)
        then = kept if isinstance(kept, dict) else {}
        other.update(name for name in now if then.get(name, now[name]) != now[name])
    return " and ".join(sorted(other))


def told(record: dict[str, Any], config: Config) -> str:
    """Returns what to say of a run that is done, "" where its code is what it was."""
    code = changed(record, config)
    return f"trained with other code of {code}; remove the folder to train it anew" if code else ""


def trained_with(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the sessions that made a run's steps, the last one first; one that never got to a step has made none."""
    earlier = record.get("earlier")
    for session in reversed([*(earlier if isinstance(earlier, list) else []), record]):
        if isinstance(session, dict) and session.get("resumed_at") is not None:
            yield session
            if session["resumed_at"] == 0:
                return
