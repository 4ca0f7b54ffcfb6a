"""Alpha and beta of a network from measured one-way times, and the file that `network=PATH` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Fit:
    """t = alpha_s + beta_s_per_byte * bytes, with standard errors; `misfit`: largest relative residual."""

    alpha_s: float
    beta_s_per_byte: float
    alpha_error: float
    beta_error: float
    misfit: float


def fit(sizes: Sequence[int], seconds: Sequence[float]) -> Fit:
    """Least squares of the relative residuals, so that a 1 KB message counts as much as one of 16 MB.

    The standard errors come from the residuals themselves: they hold what the straight line cannot follow
    as well.
    """
    if len(set(sizes)) < 3:
        raise ValueError(f"a fit with errors needs three sizes, not {sorted(set(sizes))}")
    time = np.asarray(seconds, float)
    # Columns of 1 and of megabytes, each row divided by its time: the right-hand side is all ones.
    rows = np.column_stack([np.ones(len(time)), np.asarray(sizes, float) / 1e6]) / time[:, None]
    found, *_ = np.linalg.lstsq(rows, np.ones(len(time)), rcond=None)
    residual = 1 - rows @ found
    covariance = np.linalg.inv(rows.T @ rows) * (residual @ residual) / (len(time) - 2)
    error = np.sqrt(np.diag(covariance))
    (alpha, beta), (alpha_error, beta_error) = found.tolist(), error.tolist()
    return Fit(alpha, beta / 1e6, alpha_error, beta_error / 1e6, float(np.abs(residual).max()))


def to_yaml(found: Fit, name: str, bits_per_s: float, source: str) -> str:
    """A network file for `network=PATH`; alpha is at least 0, as the cost model wants it."""
    return (
        f"# {source}\n"
        f"name: {name}\n"
        f"alpha_s: {max(0.0, found.alpha_s):.6e}  # measured, standard error {found.alpha_error:.1e}\n"
        f"beta_s_per_byte: {found.beta_s_per_byte:.6e}  # measured, standard error {found.beta_error:.1e}\n"
        f"bits_per_s: {bits_per_s:g}  # the line rate\n"
    )
