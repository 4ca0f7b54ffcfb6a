"""Turns a density into k."""

import math


def entries(density: float, parameters: int) -> int:
    """Returns k, how many of `parameters` entries a density selects: at least one."""
    return max(1, math.floor(density * parameters))
