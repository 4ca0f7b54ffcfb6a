"""Bounds the norm of a gradient."""

from torch import Tensor


def clip(gradient: Tensor, most: float) -> None:
    """Scales `gradient` in place to an L2 norm of `most`, if it has a larger one."""
    gradient.mul_((most / gradient.norm().clamp_min(1e-30)).clamp_max(1.0))
