"""Writes JSON as its standard has it: without NaN and Infinity, which other readers refuse."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(value: Any, **options: Any) -> str:
    """Returns `value` as JSON. A number that is not finite was measured or computed as none, and becomes null."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # rare, so that only then every number is looked at
        return json.dumps(_finite(value), allow_nan=False, **options)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
