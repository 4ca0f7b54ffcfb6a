"""Numbers as people type them: 14.7M parameters, nodes 4,8,...,4096."""

from __future__ import annotations

from repro.schema import ConfigError

UNITS = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def counts(name: str, text: str) -> list[int]:
    """ "270k,2.7M" -> [270000, 2700000]. Raises ConfigError."""
    return [_count(name, part.strip()) for part in text.split(",")]


def _count(name: str, text: str) -> int:
    digits, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    try:
        value = round(float(digits) * unit)
    except (ValueError, OverflowError):
        value = 0
    if value < 1:
        raise ConfigError(f"{name} {text}: expected a positive number such as 14.7M, 270k or 25557032.")
    return value


def doubled(text: str) -> str:
    """ "4,8,...,64" -> "4,8,16,32,64"; a text without dots stays as it is. Raises ConfigError."""
    parts = text.split(",")
    if "..." not in parts:
        return text
    place = parts.index("...")
    try:
        value, last = int(parts[place - 1]), int(parts[place + 1])
    except (ValueError, IndexError):
        value, last = 0, 0
    if value < 1 or last <= value or place == 0:
        raise ConfigError(f"nodes={text}: dots stand between two numbers and double, as in nodes=4,8,...,64.")
    between = []
    while (value := 2 * value) < last:
        between.append(str(value))
    return ",".join(parts[:place] + between + parts[place + 1 :])
