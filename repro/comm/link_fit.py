"""Alpha and beta of a network from measured one-way times, and the file that `network=PATH` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Fit:
    """t = alpha_s + beta_s_per_byte * bytes, with standard errors.

    `misfit`: how much larger the larger of time and line is at the worst point.
    """

    alpha_s: float
    beta_s_per_byte: float
    alpha_error: float
    beta_error: float
    misfit: float


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> Fit:
    """Least squares of log t: 1 KB counts as much as 16 MB, and too slow as much as too fast.

    Both parameters are positive by construction (Gauss-Newton on their logarithms). The standard errors come
    from the residuals: they hold what a line cannot follow as well as noise.
    """
    if len(set(sizes)) < 3:
        raise ValueError(f"a fit with errors needs three sizes, not {sorted(set(sizes))}")
    size, time = np.asarray(sizes, float), np.asarray(seconds, float)
    shape = np.column_stack([np.ones(len(size)), size])
    found = np.array([time.min(), time[size.argmax()] / size.max()])
    for _ in range(50):
        parts = shape * found
        jacobian = parts / parts.sum(1, keepdims=True)
        residual = np.log(time / parts.sum(1))
        step = np.linalg.lstsq(jacobian, residual, rcond=None)[0]
        found = found * np.exp(np.clip(step, -1, 1))
    variance = residual @ residual / (len(time) - 2)
    error = found * np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)) * variance)
    (alpha, beta), (alpha_error, beta_error) = found.tolist(), error.tolist()
    return Fit(alpha, beta, alpha_error, beta_error, float(np.expm1(np.abs(residual)).max()))


def to_yaml(found: Fit, name: str, bits_per_s: float, source: str) -> str:
    """A network file for `network=PATH`."""
    return (
        f"# {source}\n"
        f"name: {name}\n"
        f"alpha_s: {found.alpha_s:.6e}  # measured, standard error {found.alpha_error:.1e}\n"
        f"beta_s_per_byte: {found.beta_s_per_byte:.6e}  # measured, standard error {found.beta_error:.1e}\n"
        f"bits_per_s: {bits_per_s:g}  # the line rate\n"
    )
