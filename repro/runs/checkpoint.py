"""Saves checkpoints whole or not at all: every rank writes its file, rank 0 then lists them all in a manifest."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from repro.cluster.stalls import DISK
from repro.comm.collective import Collective
from repro.config.schema import RunError
from repro.json_text import json_text
from repro.runs import metrics
from repro.runs.metrics import Position
from repro.whole_files import write_whole

SEEN_S = 20.0  # how long a shared file system may take to show a new file on other machines
KEEP = 2  # the newest and the one before, to fall back to


class Checkpoint(NamedTuple):
    step: int
    folder: Path
    metrics: Position | None  # how far metrics.jsonl had come; None: not known, as it was made before
    ranks: int = 0  # that made it; 0: not known, as it is damaged


def save(
    folder: Path,
    step: int,
    files: dict[str, Any],
    control: Collective,
    reached: Callable[[], Position] | None = None,
    waits: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> None:
    """Saves this rank's `files` (name -> state) as part of the checkpoint of `step`; returns once it is complete.

    Collective: all ranks call it. `reached`, of rank 0, puts metrics.jsonl on the disk, before the manifest is. A crash
    at any moment leaves the earlier checkpoints as they were. `waits(what)` is held while this rank writes,
    as a disk may stall for longer than a rank may do nothing.
    """
    target = folder / f"step-{step:09d}"
    target.mkdir(parents=True, exist_ok=True)
    digests = {}
    if control.rank == 0:
        _remove(target / "manifest.json")  # of an earlier session: from here on it is not complete
    with waits(DISK):
        for name, state in files.items():
            _write(target / name, state)
            digests[name] = _digest(target / name)
    everyone = control.gather_objects(digests)
    if control.rank == 0:
        manifest = {name: digest for part in everyone for name, digest in part.items()}
        said = {} if reached is None else {"metrics": reached()._asdict()}
        text = json_text({"step": step, "ranks": control.size, **said, "sha256": manifest}, indent=1)
        with waits(DISK):
            write_whole(target / "manifest.json", text)
            _remove_others(folder, step)
    control.barrier()


def check_shared(folder: Path, control: Collective) -> None:
    """Raises RunError on all ranks where one does not see `folder` as rank 0 does. Collective; `folder` is there.

    A checkpoint of which rank 0 misses a part is none, and that would be found after the run was stopped.
    """
    mark = folder / f".seen-by-all-{control.gather_objects(os.urandom(8).hex())[0]}"
    if control.rank == 0:
        mark.touch()
    control.barrier()
    end = time.monotonic() + SEEN_S
    while not (seen := _is_seen(mark)) and time.monotonic() < end:
        time.sleep(0.1)
    who = "" if seen else f"{control.rank} on {socket.gethostname()}"
    blind = [text for text in control.gather_objects(who) if text]
    if control.rank == 0:
        mark.unlink()
    if blind:
        raise RunError(
            f"{folder} of rank 0 is not the one of rank {', '.join(blind)}: results= must name one folder that all "
            "machines share"
        )


def _is_seen(mark: Path) -> bool:
    """Looks into the folders first: NFS remembers for a minute that a name was missing, but not past an opening."""
    for folder in (mark.parent.parent, mark.parent):
        with suppress(OSError):
            os.listdir(folder)
    return mark.exists()


def newest_first(folder: Path) -> Iterator[tuple[Checkpoint, str | None]]:
    """Yields the checkpoints that were complete once, each with what is damaged in it now, or None."""
    for step, target in reversed(_complete(folder)):
        yield _examined(step, target)


def newest_whole(folder: Path) -> Checkpoint:
    """Returns the newest checkpoint in which nothing is damaged. Raises RunError where there is none."""
    for found, damage in newest_first(folder):
        if damage is None:
            return found
    raise RunError(f"{folder} has no whole checkpoint")


def newest_step(folder: Path) -> int:
    """Returns the step after which the newest complete checkpoint was saved, 0 where there is none; reads none."""
    return max((step for step, _ in _complete(folder)), default=0)


def load(target: Path, name: str, device: torch.device) -> Any:
    """Returns the content of one file of a checkpoint. Raises RunError where it is none; no code in it is ever run."""
    try:
        return torch.load(target / name, map_location=device, weights_only=True)
    except torch.OutOfMemoryError:
        raise
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError):
        # not torch's own words: they advise to load with weights_only=False, which runs what is in the file
        raise RunError(f"{target / name} is no file of a checkpoint of this suite") from None


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    """Returns the folders of checkpoints, by step; whatever else lies there is passed over."""
    found = [(re.fullmatch(r"step-(\d{9,})", path.name), path) for path in folder.glob("step-*")]
    return sorted((int(name[1]), path) for name, path in found if name and path.is_dir())


def _complete(folder: Path) -> list[tuple[int, Path]]:
    """Returns those with a manifest: without one it was never complete."""
    return [(step, path) for step, path in _numbered(folder) if (path / "manifest.json").exists()]


def _examined(step: int, target: Path) -> tuple[Checkpoint, str | None]:
    try:
        said = json.loads((target / "manifest.json").read_text())
        found = Checkpoint(step, target, metrics.from_json(said.get("metrics")), said["ranks"])
        if said["step"] != step:
            return found, f"its manifest is of step {said['step']}"
        bad = [name for name, digest in said["sha256"].items() if _digest(target / name) != digest]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Checkpoint(step, target, None), f"{type(error).__name__}: {error}"
    return found, f"{bad[0]} has changed" if bad else None


def _remove_others(folder: Path, step: int) -> None:
    """Removes all but the KEEP newest whole ones up to `step`; later ones were left by a run that resumed earlier."""
    kept = [path for at, path in _complete(folder) if at <= step][-KEEP:]
    for _, path in _numbered(folder):
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _write(path: Path, state: Any) -> None:
    pending = path.with_suffix(".part")
    try:
        with pending.open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError:  # torch does not say why; on a full disk a plain write does
                file.write(bytes(1 << 20))
                file.flush()
                raise
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            pending.unlink(missing_ok=True)  # a full disk would stay full, for the other runs too
        raise
    if path.is_dir():
        _remove(path)
    pending.replace(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
