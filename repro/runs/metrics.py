"""Keeps metrics.jsonl, the truth about a run, and tells how far it can be trusted.

A checkpoint's manifest holds the length and the SHA-256 that the file had when the checkpoint was saved. A resume takes
the newest checkpoint whose part of the file is still there to the bit, and cuts off what stands after it. Checkpoints
that were made before the manifest said so need a line for each of their steps.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from repro.config.schema import RunError
from repro.json_text import json_text
from repro.whole_files import write_whole

NAME = "metrics.jsonl"
OF_STEPS = ("step", "eval")  # the kinds of lines that belong to one


class Position(NamedTuple):
    """Says how much of the file there was at one moment."""

    bytes: int
    sha256: str


class Metrics:
    """Appends to metrics.jsonl. Raises RunError once the file is not the one that it began to write."""

    def __init__(self, folder: Path):
        self.file = folder / NAME
        self._open()

    def _open(self) -> None:
        self.stream = open(self.file, "ab")  # noqa: SIM115  (closed by `close`)
        content = self.file.read_bytes()
        self.length, self.digest = len(content), hashlib.sha256(content)

    def append(self, line: dict[str, Any]) -> None:
        text = _encoded(line)
        self.check()
        self.stream.write(text)
        self.stream.flush()
        self.digest.update(text)
        self.length += len(text)

    def position(self) -> Position:
        """Returns how far the file has come, once this is on the disk."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.check()
        return Position(self.length, self.digest.hexdigest())

    def check(self) -> None:
        """Raises RunError where the file was removed or replaced: what is written to it then reaches no folder."""
        try:
            same = os.path.samestat(os.stat(self.file), os.fstat(self.stream.fileno()))
        except (FileNotFoundError, NotADirectoryError):
            same = False
        if not same:
            raise RunError(
                f"{self.file} was removed or replaced while the run was writing to it, so that its results are "
                "lost. The same command goes on from what is left"
            )

    def cut(self, step: int, position: Position | None) -> None:
        """Keeps what stands up to the checkpoint of `step`, whose position in the file is `position` if it is known.

        Later lines on the measured iteration, which belongs to no step, stay too.
        """
        self.stream.close()
        content = self.file.read_bytes()
        if position is None:
            kept, rest = _up_to(parsed(content), step) if step else ([], [])  # a new start times a rank again
            content = b"".join(map(_encoded, kept))
        else:
            rest = parsed(content[position.bytes :])
            content = content[: position.bytes]
        later = [line for line in rest if step and line["kind"] == "iteration_time"]
        write_whole(self.file, content + b"".join(map(_encoded, later)))
        self._open()

    def close(self) -> None:
        self.stream.close()


def parsed(content: bytes) -> list[dict[str, Any]]:
    """Returns the lines up to the first that is no line of metrics.jsonl: a kill may have cut the last one short."""
    lines = []
    for text in content.splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            break
        if not isinstance(line, dict) or not isinstance(kind := line.get("kind"), str):
            break
        if not _whole(line.get("step", None if kind in OF_STEPS else 0)):
            break
        lines.append(line)
    return lines


def read(folder: Path) -> list[dict[str, Any]]:
    """Returns the lines of the run in `folder`, [] where there are none."""
    return parsed(_content(folder) or b"")


def left_out(folder: Path) -> str | None:
    """Returns what to say of steps that on_nonfinite=skip left out; None where there were none."""
    skipped = [bool(line.get("skipped")) for line in read(folder) if line["kind"] == "step"]
    if not any(skipped):
        return None
    last = next((number for number, left in enumerate(reversed(skipped)) if not left), len(skipped))
    end = f", the last {last:,} among them: the weights may not be finite any more" if last > 1 else ""
    return f"{sum(skipped):,} of {len(skipped):,} steps changed nothing, as a gradient was not finite{end}"


def lacking(folder: Path, step: int, position: Position | None) -> str | None:
    """Returns why the file does not hold the steps 1 to `step`, or not what it held at `position`; None if it does."""
    content = _content(folder)
    if content is None:
        return f"{NAME} is missing"
    if position is not None:
        if len(content) < position.bytes:
            return f"{NAME} ends before that step"
        content = content[: position.bytes]
        if hashlib.sha256(content).hexdigest() != position.sha256:
            return f"{NAME} is not what it was then"
    steps = [line["step"] for line in parsed(content) if line["kind"] == "step"]
    if steps[:step] == list(range(1, step + 1)):
        return None
    missing = next((at for at, found in enumerate(steps, 1) if at != found), len(steps) + 1)
    return f"{NAME} has no step {missing} in its place"


def changed(folder: Path, position: Position) -> bool:
    """Returns whether the file is another than at `position`, where the run was done with it."""
    content = _content(folder)
    return content is None or Position(len(content), hashlib.sha256(content).hexdigest()) != position


def size(folder: Path) -> int:
    """Returns the bytes of the file, 0 where there is none."""
    try:
        return (folder / NAME).stat().st_size
    except OSError:
        return 0


def from_json(said: Any) -> Position | None:
    """Returns the position that a manifest or a status.json holds; None for those made before, or for what is none."""
    if isinstance(said, dict) and _whole(said.get("bytes")) and isinstance(said.get("sha256"), str):
        return Position(said["bytes"], said["sha256"])
    return None


def _content(folder: Path) -> bytes | None:
    file = folder / NAME
    try:
        return file.read_bytes() if file.is_file() else None  # a pipe, say, would not end
    except OSError:
        return None


def _up_to(lines: list[dict[str, Any]], step: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the lines up to the last of `step`, each step once, and the lines after them."""
    made = 0
    for at, line in enumerate(lines):
        own = line["kind"] == "step"
        if line.get("step", 0) > step or (own and line["step"] != made + 1):
            return lines[:at], lines[at:]
        made += own
    return lines, []


def _encoded(line: dict[str, Any]) -> bytes:
    return json_text(line).encode() + b"\n"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
