"""Tells whether the code of a run's algorithm is still what its folder was trained with.

No run id depends on code, and a change that is not committed leaves the commit in provenance.json as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from repro.config.groups import conf_folder
from repro.config.schema import Config

KEY = "algorithm"  # of provenance.json; not of a machine, so that no summary holds it


def digests(config: Config) -> dict[str, str]:
    """Returns the SHA-256 of the algorithm's module and of its YAML, by the file's name."""
    module = Path(__file__).parents[1] / "algorithms" / f"{config.algo.module}.py"
    found = {}
    for file in (module, conf_folder() / "algo" / f"{config.algo.name}.yaml"):
        with suppress(OSError):
            found[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def changed(record: dict[str, Any], config: Config) -> str:
    """Returns the files that are now other than a session was with which the run in provenance.json was trained.

    "" where there is none. Sessions from before they were kept say nothing.
    """
    now, other = digests(config), set[str]()
    for session in _trained_with(record):
        kept = session.get(KEY)
        then = kept if isinstance(kept, dict) else {}
        other.update(name for name in now if then.get(name, now[name]) != now[name])
    return " and ".join(sorted(other))


def told(record: dict[str, Any], config: Config) -> str:
    """Returns what to say of a run that is done, "" where its code is what it was."""
    code = changed(record, config)
    return f"trained with other code of {code}; remove the folder to train it anew" if code else ""


def _trained_with(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the sessions that made a run's steps, the last one first; one that never got to a step has made none."""
    earlier = record.get("earlier")
    for session in reversed([*(earlier if isinstance(earlier, list) else []), record]):
        if isinstance(session, dict) and session.get("resumed_at") is not None:
            yield session
            if session["resumed_at"] == 0:
                return
