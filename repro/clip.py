"""Looks at a gradient as a whole: bounds its norm, and says whether it is finite."""

import torch
from torch import Tensor


def clip(gradient: Tensor, most: float) -> None:
    """Scales `gradient` in place to an L2 norm of `most`, if it has a larger one."""
    wide = torch.promote_types(gradient.dtype, torch.float32)  # squares of float16 end at 65,504
    norm = gradient.norm(dtype=wide)
    if torch.isinf(norm):  # of entries beyond 1.8e19, whose squares float32 does not hold; else all would become zero
        norm = gradient.norm(dtype=torch.float64)
    gradient.mul_((most / norm.clamp_min(1e-30)).clamp_max(1.0))


def finite(x: Tensor) -> bool:
    """Returns whether `x` is finite: by its sum, which needs no mask of its size; by each entry if that overflows."""
    return bool(torch.isfinite(x.sum())) or bool(torch.isfinite(x).all())
