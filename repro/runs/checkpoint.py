"""Checkpoints that are whole or absent: every rank writes its file, rank 0 then names them all in a manifest."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from repro.collective import Collective

KEEP = 2  # the newest and the one before, to fall back to


def save(folder: Path, step: int, files: dict[str, Any], control: Collective) -> None:
    """Save this rank's `files` (name -> state) as part of the checkpoint of `step`; returns once it is complete.

    Collective: all ranks call it. A crash at any moment leaves the earlier checkpoints as they were.
    """
    target = folder / f"step-{step:09d}"
    target.mkdir(parents=True, exist_ok=True)
    digests = {}
    for name, state in files.items():
        _write(target / name, state)
        digests[name] = _digest(target / name)
    everyone = control.gather_objects(digests)
    if control.rank == 0:
        manifest = {name: digest for part in everyone for name, digest in part.items()}
        pending = target / "manifest.part"
        pending.write_text(json.dumps({"step": step, "ranks": control.size, "sha256": manifest}, indent=1))
        pending.replace(target / "manifest.json")
        for old in sorted(folder.glob("step-*"))[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)
    control.barrier()


def latest(folder: Path) -> tuple[int, Path] | None:
    """The newest checkpoint whose files all match their manifest, as (step, folder); a damaged one gets a warning."""
    for step, target in _newest_first(folder):
        reason = _damage(target)
        if reason is None:
            return step, target
        warnings.warn(f"checkpoint {target} is not usable ({reason}); trying the one before", stacklevel=2)
    return None


def load(target: Path, name: str, device: torch.device) -> Any:
    """One file of a checkpoint."""
    return torch.load(target / name, map_location=device, weights_only=True)


def _newest_first(folder: Path) -> Iterator[tuple[int, Path]]:
    for target in sorted(folder.glob("step-*"), reverse=True):
        if (target / "manifest.json").exists():  # without one it was never complete: no cause for a warning
            yield int(target.name.removeprefix("step-")), target


def _damage(target: Path) -> str | None:
    try:
        files = json.loads((target / "manifest.json").read_text())["sha256"]
        bad = [name for name, digest in files.items() if _digest(target / name) != digest]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return str(error)
    return f"{bad[0]} has changed" if bad else None


def _write(path: Path, state: Any) -> None:
    pending = path.with_suffix(".part")
    with pending.open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError:  # torch does not say why; on a full disk a plain write does
            file.write(bytes(1 << 20))
            file.flush()
            raise
        file.flush()
        os.fsync(file.fileno())
    pending.replace(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
