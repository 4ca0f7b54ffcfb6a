"""Writes what `repro run --show` prints: a configuration as YAML, each value with its range or choices beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import yaml

from repro.config import groups
from repro.config.compose import declared
from repro.config.schema import Config


def text(config: Config) -> str:
    return "".join(f"{line}\n" for line in _lines(dataclasses.asdict(config)))


def _lines(values: dict[str, Any], group: str = "", indent: str = "") -> Iterator[str]:
    """Yields one line per key of `group`; "" is the root."""
    about = declared(group, values["name"]) if group in groups.KINDS else {}
    for name, value in values.items():
        if name == "options" and value:
            yield f"{indent}options:"
            yield from (_line(indent + "  ", f"{group}.{option}", value[option], about) for option in value)
        elif isinstance(value, dict) and value:
            yield f"{indent}{name}:"
            yield from _lines(value, name, indent + "  ")
        else:
            yield _line(indent, f"{group}.{name}".lstrip("."), value, about)


def _line(indent: str, key: str, value: Any, about: dict[str, Any]) -> str:
    flow = None if isinstance(value, list | dict) else False  # PyYAML's None: a list stays on its key's line
    written = yaml.safe_dump({key.rpartition(".")[2]: value}, default_flow_style=flow, width=10_000).strip()
    allowed = groups.allowed(key, about) if value != 0 or key not in ("data.image_size", "data.sequence") else ""
    return indent + written + (f"  # {allowed}" if allowed else "")
