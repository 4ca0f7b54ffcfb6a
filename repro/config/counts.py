"""Reads numbers as people type them: 14.7M parameters, nodes 4,8,...,4096, seconds of compute+compress 0.14+0.09."""

from __future__ import annotations

from repro.config.values import ConfigError

MOST = 10_000_000_000  # parameters; a thousandth of them, with their indices, still fits into memory
PROFILES = ("paper", "measured")  # where the seconds of a node come from, besides stated ones
RELAXES = ("exact", "compressed", "all")  # what an algorithm may give up, least first; each includes the one before
MOST_S = 1e6  # eleven days
UNITS = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def counts(name: str, text: str) -> list[int]:
    """Reads "270k,2.7M" as [270000, 2700000]. Raises ConfigError."""
    return [_count(name, part.strip()) for part in text.split(",")]


def _count(name: str, text: str) -> int:
    digits, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1)
    try:
        value = round(float(digits) * unit)
    except (ValueError, OverflowError):
        value = 0
    if not 1 <= value <= MOST:
        raise ConfigError(
            f"{name} {text}: expected a positive number such as 14.7M, 270k or 25557032, and at most "
            f"{MOST // UNITS['G']}G."
        )
    return value


def node_seconds(text: str) -> tuple[float, float | None] | None:
    """Reads seconds of compute and compress: "0.14+0.09" -> (0.14, 0.09); "0.14" -> (0.14, None), compress unknown.

    Returns None for other profiles. Raises ConfigError.
    """
    if text in PROFILES:
        return None
    try:
        compute, plus, compress = text.partition("+")
        compute_s, compress_s = float(compute), float(compress) if plus else None
    except ValueError:
        raise ConfigError(
            f"node={text}: choose paper, measured, or seconds as in 0.14+0.09"
            + (f"; {text} is of `repro run cluster=lab`." if text in ("paper_compute", "stated") else ".")
        ) from None
    if not (0 < compute_s <= MOST_S and 0 <= (compress_s or 0.0) <= MOST_S):
        raise ConfigError(
            f"node={text}: seconds of compute must be above 0, of compress at least 0, both at most {MOST_S:g}."
        )
    return compute_s, compress_s


def doubled(name: str, text: str) -> str:
    """Expands "4,8,...,64" to "4,8,16,32,64"; a text without dots stays as it is.

    Numbers beside the dots may have a unit, as 270k. Raises ConfigError, which calls the text `name`.
    """
    parts = text.split(",")
    if "..." not in parts:
        return text
    place = parts.index("...")
    try:
        value, last = (_count(name, parts[at]) for at in (place - 1, place + 1))
    except (ConfigError, IndexError):
        value, last = 0, 0
    if last <= value or place == 0:
        raise ConfigError(f"{name}={text}: dots stand between two numbers and double, as in {name}=4,8,...,64.")
    between = []
    while (value := 2 * value) < last:
        between.append(str(value))
    return ",".join(parts[:place] + between + parts[place + 1 :])
