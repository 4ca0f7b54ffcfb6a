"""Checks the type and the range of one value, which are declared beside its default and checked only here."""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints


class ConfigError(Exception):
    """Reports that the user asked for something impossible: printed as one message, exit code 2."""


class RunError(Exception):
    """Reports that something failed while running: printed as one message, exit code 1."""


# The words of a range, here and under `ranges:` in conf/. A text instead of a number names the key beside it whose
# value is the bound; `length` is how many numbers a list has.
BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "low": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "high": ("at most", operator.le),
    "below": ("below", operator.lt),
}
MOST = 2**31 - 1  # the largest whole number where nothing else bounds it


def key(*, default: Any = dataclasses.MISSING, result: bool = True, **bounds: float | str) -> Any:
    """Declares a field with its range; `result=False` means it cannot change a run's result, so the run id omits it."""
    metadata = {**bounds, "result": result}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@cache  # asked for every point of a sweep
def required(kind: Any) -> tuple[str, ...]:
    """Returns the fields of a dataclass that have no default."""
    missing = dataclasses.MISSING
    return tuple(f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing)


hints_of = cache(get_type_hints)  # which takes longer than all the checks


class Checked:
    """Checks types and ranges when an instance is made. Raises a ConfigError that names the key."""

    at: ClassVar[str] = ""  # prefix of the fields on the command line: "algo." in algo.selector

    def __post_init__(self) -> None:
        hints = hints_of(type(self))  # type: ignore[arg-type]
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value = convert(self.at + f.name, getattr(self, f.name), hints[f.name], f.metadata)
            if value != f.default:  # 0 may stand for nothing where the least is 1
                check_range(self.at + f.name, value, f.metadata, vars(self))
            object.__setattr__(self, f.name, value)  # frozen; 1 given for a float becomes 1.0


def convert(name: str, value: Any, kind: Any, allowed: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Returns `value` as `kind`, or raises a ConfigError with what was expected. It does not guess: "3" is no int.

    `allowed` is the range, only to name it.
    """
    if get_origin(kind) in (UnionType, Union):
        kind = next(k for k in get_args(kind) if k is not type(None))
        return None if value is None else convert(name, value, kind, allowed)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ConfigError(f"{name}={value}: choose one of {', '.join(get_args(kind))}.")
        return value
    if kind is list or get_origin(kind) is list:
        if not isinstance(value, list):
            raise ConfigError(f"{name}={value}: expected a list, for example {name}=[{value}] or {name}=[].")
        each = {word: bound for word, bound in allowed.items() if word != "length"}
        return [convert(name, item, of, each) for of in get_args(kind) for item in value] if get_args(kind) else value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 10**300 else math.inf
    if kind is Any or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name}={value}: must be a finite number.")
        return value
    expected = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: f"a text, in quotes within quotes if it looks like a number: {name}=\"'TEXT'\"",
        dict: f"its keys, as in {name}.KEY=VALUE",
    }
    bounds = f", {text}" if (text := range_text(allowed)) else ""
    raise ConfigError(f"{name}={value}: expected {expected.get(kind, kind.__name__)}{bounds}.")


def check_range(
    name: str, value: Any, allowed: Mapping[str, Any], beside: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Raises a ConfigError that names the key and its range; `beside` has the values of keys that bounds may name."""
    limits = {
        word: beside.get(allowed[word]) if isinstance(allowed[word], str) else allowed[word]
        for word in BOUNDS
        if word in allowed
    }
    wrong = [item for item in (value if isinstance(value, list) else [value]) if not _inside(item, limits)]
    if isinstance(value, list) and len(value) != allowed.get("length", len(value)):
        wrong = [value]
    if wrong:
        named = {word: f"{bound}={limits[word]}" for word, bound in allowed.items() if isinstance(bound, str)}
        raise ConfigError(f"{name}={_short(wrong[0])}: must be {range_text({**allowed, **named})}.")


def range_text(allowed: Mapping[str, Any]) -> str:
    """Returns the range for messages, `--show` and completion: "at least 1 and at most 4096", "" if there is none."""
    bounds = " and ".join(f"{word} {_short(allowed[name])}" for name, (word, _) in BOUNDS.items() if name in allowed)
    count = f"{allowed['length']} numbers" if "length" in allowed else ""
    return ", each ".join(part for part in (count, bounds) if part)


def _inside(item: Any, limits: Mapping[str, Any]) -> bool:
    """Tells whether item is no number or within the limits; another check reports a limit that is no number."""
    checks = [(BOUNDS[word][1], limit) for word, limit in limits.items() if _number(limit)]
    return not _number(item) or all(holds(item, limit) for holds, limit in checks)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ",".join(map(_short, value)) + "]"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
