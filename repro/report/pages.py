"""Fills the parts of the README and docs/ that are written from the code and the committed summaries.

A part stands between `<!-- generated: NAME -->`, or `<!-- generated: NAME ARGUMENT -->`, and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from repro.config.schema import ConfigError
from repro.report import page_parts, reference, repeat, summaries
from repro.report.summaries import Results
from repro.whole_files import write_whole

BEGIN, END = "<!-- generated: ", "<!-- end -->"
PART = re.compile(rf"^{BEGIN}(\w+)(?: (\w+))? -->\n.*?^{END}$", re.DOTALL | re.MULTILINE)
Part = Callable[[Results, str], str]
PARTS: dict[str, Part] = {
    "table": page_parts.table,
    "status": page_parts.status,
    "claims": page_parts.claims,
    "codecs": page_parts.codecs,
    "rules": page_parts.rules,
    "measured": page_parts.measured,
    "differences": page_parts.differences,
    "items": page_parts.items,
    "trainings": repeat.part,
    "algorithms": page_parts.algorithms,
    "keys": lambda _, __: reference.keys(),
    "options": lambda _, group: reference.options(group),
    "experiments": lambda _, __: reference.experiments(),
}


def files(root: Path) -> list[Path]:
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def update(root: Path, write: bool, more: Mapping[str, Part] | None = None) -> list[Path]:
    """Returns the pages of the checkout `root` that are out of date; with `write`, it also writes them anew.

    `more` holds the parts that only a command can make. Raises ConfigError.
    """
    own = root / "results"
    data = summaries.load(own if (own / "paper.yaml").is_file() else None)
    parts = {**PARTS, **(more or {})}
    if not (root / "docs").is_dir():
        raise ConfigError(f"{root} has no docs/: type this in a checkout of the suite, or name one.")
    stale = []
    for file in files(root):
        text = _read(file)
        fresh = _filled(file, text, parts, data)
        if fresh != text:
            stale.append(file)
            if write:
                write_whole(file, fresh)
    return stale


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as text: {error}.") from None


def _filled(file: Path, text: str, parts: Mapping[str, Part], data: Results) -> str:
    def fill(match: re.Match[str]) -> str:
        name, argument = match[1], match[2] or ""
        if name not in parts:
            raise ConfigError(f"{file}: there is no part {name}. Choose one of {', '.join(sorted(parts))}.")
        mark = f"{BEGIN}{name}{argument and ' '}{argument} -->"
        return f"{mark}\n{parts[name](data, argument).strip()}\n{END}"

    if len(PART.findall(text)) != len(re.findall(rf"^{BEGIN}", text, re.MULTILINE)):
        raise ConfigError(f"{file}: a line with {BEGIN}NAME --> needs a later line with {END} alone.")
    return PART.sub(fill, text)
