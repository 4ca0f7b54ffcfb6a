"""Writes what people read on a screen: numbers, bytes, and tables that fold where the screen ends.

A number is never cut: a column that does not fit goes into a second table below, which begins with the same columns.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]  # column -> text, number, Bytes or None; every row has the same columns

NONE = "–"
GAP = "  "
NAME = 24  # characters of a name that is not broken, as of an algorithm
LEAST = 20  # characters: no terminal that people read on is narrower
UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
NUMBER = re.compile(rf"{NONE}|[-+]?[\d,]*\.?\d+(e[-+]?\d+)?(/\d+)?")


class Bytes(float):
    """Is a count of bytes; a column of them has one unit, in its header."""


def three(value: float) -> str:
    """Writes a number with three significant digits, and no digit before the point left out: 0.124, 54.0, 1,618."""
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e12:
        return f"{value:.3g}"
    digits = max(0, 2 - int(f"{value:.2e}".split("e")[1]))
    return f"{value:,.{digits}f}"


def size(count: float) -> str:
    """Writes a count of bytes: 43.2 kB, 1.62 MB, 5.90 GB."""
    unit = _unit([count])
    return f"{three(count / UNITS[unit]) if unit != 'B' else int(count)} {unit}"


def milliseconds(seconds: float) -> str:
    return f"{three(1e3 * seconds)} ms"


def ms(seconds: float | None) -> float | None:
    """Returns milliseconds for a cell."""
    return None if seconds is None else 1e3 * seconds


def percent(share: float | None) -> float | None:
    """Returns per cent for a cell."""
    return None if share is None else 100 * share


def duration(seconds: float) -> str:
    """Formats as 59 s, 12 min or 3 h 05 min."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def plural(count: int, noun: str) -> str:
    """Writes `1 epoch`, `3 epochs`, `50,000 images`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def width() -> int:
    """Returns how many characters a line of the terminal has; 80 in a file or a pipe, unless COLUMNS says otherwise."""
    return max(LEAST, shutil.get_terminal_size((80, 24)).columns)


def sentence(text: str) -> str:
    """Breaks a text between its words where the screen ends, but neither `k = 269` nor `170 MB`."""
    whole = re.sub(r" = |(?<=\d) (?=[kMGT]?B\b|%|ms\b|nodes?\b)", lambda found: found[0].replace(" ", "\xa0"), text)
    lines = textwrap.wrap(whole, width(), break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\xa0", " ")


def indented(text: str) -> str:
    """Breaks a line between its words; what follows stands four characters further in than it began."""
    begin = text[: len(text) - len(text.lstrip())]
    return "\n".join(textwrap.wrap(
        text.strip(), width(), initial_indent=begin, subsequent_indent=begin + "    ", break_long_words=False,
        break_on_hyphens=False,
    ))  # fmt: skip


def show(rows: Rows, keys: int = 1) -> None:
    """Prints `table` for this screen."""
    print(table(rows, keys))


def table(rows: Rows, keys: int = 1, columns: int | None = None) -> str:
    """Returns the rows as text of lines of at most `columns` characters, the screen's width without it.

    The first `keys` columns say what a row is about, and begin each of the tables that a wide one folds into. Numbers
    stand at the right of their column. A text that is wider than the screen is broken into lines.
    """
    room = columns or width()
    if not rows:
        return ""
    cells = [_column(name, [row[name] for row in rows]) for name in rows[0]]
    tall = [_fitted(column, room, keys, place) for place, column in enumerate(cells)]
    if sum(_width(column) for column in cells) + len(GAP) * (len(cells) - 1) <= room:
        return _drawn(cells)
    parts: list[list[list[list[str]]]] = []
    used = room + 1  # of the part begun last; none is begun yet
    while keys > 1 and sum(_width(column) + len(GAP) for column in tall[:keys]) > room // 2:
        keys -= 1
    first = tall[:keys]
    of_keys = sum(_width(column) + len(GAP) for column in first)
    for column in tall[keys:]:
        if used + _width(column) > room:
            parts.append([*first])
            used = of_keys
        parts[-1].append(column)
        used += _width(column) + len(GAP)
    return "\n\n".join(map(_drawn, parts or [first]))


def filled(rows: Rows) -> list[dict[str, Any]]:
    """Leaves out the columns in which no row has anything."""
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)] if rows else []
    return [{name: row[name] for name in names} for row in rows]


def _column(name: str, values: list[Any]) -> list[list[str]]:
    """Returns the lines of each cell, the header first."""
    counts = [float(value) for value in values if isinstance(value, Bytes)]
    if counts:
        unit = _unit(counts)
        name = f"{name} ({unit})"
        scaled = int if unit == "B" else lambda count: float(count) / UNITS[unit]
        values = [scaled(value) if isinstance(value, Bytes) else value for value in values]
    return [[name], *([_text(value)] for value in values)]


def _unit(counts: Sequence[float]) -> str:
    """Returns the largest unit of which the most is one at least, and the least a tenth."""
    some = [count for count in counts if count] or [0.0]
    fits = [unit for unit, of in UNITS.items() if max(some) >= of and min(some) >= of / 10]
    return fits[-1] if fits else "B"


def _text(value: Any) -> str:
    if value is None or value == "":
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return three(value) if isinstance(value, int | float) else str(value)


def _fitted(column: list[list[str]], room: int, keys: int, place: int) -> list[list[str]]:
    """Breaks the header between its words, and long texts anywhere; numbers stay whole."""
    (name,), *body = column
    widest = max((len(cell) for (cell,) in body), default=0)
    limit = max(room * 5 // (8 * keys), NAME) if place < keys else room // 2
    if _is_number(column) or widest <= limit:
        limit = max(widest, *map(len, name.split()))
    return [_lines(name, limit), *(_lines(cell, limit) for (cell,) in body)]


def _lines(text: str, limit: int) -> list[str]:
    return textwrap.wrap(text, limit) or [""]


def _is_number(column: list[list[str]]) -> bool:
    return all(len(cell) == 1 and NUMBER.fullmatch(cell[0]) for cell in column[1:])


def _width(column: list[list[str]]) -> int:
    return max(len(line) for cell in column for line in cell)


def _drawn(columns: list[list[list[str]]]) -> str:
    """Draws columns side by side, with a rule below the header."""
    widths = [_width(column) for column in columns]
    right = [_is_number(column) for column in columns]
    drawn = []
    for number, row in enumerate(zip(*columns, strict=True)):
        for line in range(max(map(len, row))):
            texts = [cell[line] if line < len(cell) else "" for cell in row]
            aligned = [
                text.rjust(wide) if at_right else text.ljust(wide)
                for text, wide, at_right in zip(texts, widths, right, strict=True)
            ]
            drawn.append(GAP.join(aligned).rstrip())
        if number == 0:
            drawn.append(GAP.join("─" * wide for wide in widths))
    return "\n".join(drawn)
