"""Fits a network's alpha and beta to measured one-way times and makes the text that `network=PATH` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Fit:
    """Holds the line t = alpha_s + beta_s_per_byte * bytes and its standard errors.

    `misfit` is by what fraction the larger of time and line exceeds the other at the worst point.
    """

    alpha_s: float
    beta_s_per_byte: float
    alpha_error: float
    beta_error: float
    misfit: float


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> Fit:
    """Fits log t by least squares: 1 KB counts as much as 16 MB, and too slow as much as too fast.

    Both parameters are positive by construction (Gauss-Newton on their logarithms). The standard errors come from
    the deviations from the line: they contain noise and what no line can follow. Raises ValueError.
    """
    if len(set(sizes)) < 3:
        raise ValueError(f"a fit with errors needs three sizes, not {sorted(set(sizes))}")
    size, time = np.asarray(sizes, float), np.asarray(seconds, float)
    shape = np.column_stack([np.ones(len(size)), size])
    coefficients = np.array([time.min(), time[size.argmax()] / size.max()])
    for _ in range(50):
        parts = shape * coefficients
        jacobian = parts / parts.sum(1, keepdims=True)
        deviation = np.log(time / parts.sum(1))
        step = np.linalg.lstsq(jacobian, deviation, rcond=None)[0]
        coefficients = coefficients * np.exp(np.clip(step, -1, 1))
    variance = deviation @ deviation / (len(time) - 2)
    error = coefficients * np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)) * variance)
    (alpha, beta), (alpha_error, beta_error) = coefficients.tolist(), error.tolist()
    return Fit(alpha, beta, alpha_error, beta_error, float(np.expm1(np.abs(deviation)).max()))


def to_yaml(line: Fit, name: str, bits_per_s: float, source: str) -> str:
    """Returns the text of a network file for `network=PATH`."""
    return (
        f"# {source}\n"
        f"name: {name}\n"
        f"alpha_s: {line.alpha_s:.6e}  # measured, standard error {line.alpha_error:.1e}\n"
        f"beta_s_per_byte: {line.beta_s_per_byte:.6e}  # measured, standard error {line.beta_error:.1e}\n"
        f"bits_per_s: {bits_per_s:g}  # {'the line rate' if bits_per_s else 'the line rate is not known'}\n"
    )
