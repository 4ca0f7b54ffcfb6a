"""Compares the form of states of algorithms and networks: one that does not fit is not loaded in part."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def unlike(saved: Any, here: Any, at: str = "it") -> str:
    """Returns in what a saved state has another form than the state that it is to replace; "" where in nothing.

    What an algorithm makes in its first steps, None or empty before, may have any form.
    """
    if isinstance(here, Tensor) and here.numel():
        if not isinstance(saved, Tensor):
            return f"{at} is no tensor"
        return "" if saved.shape == here.shape else f"{at} has shape {list(saved.shape)}, not {list(here.shape)}"
    if isinstance(here, dict):
        if not isinstance(saved, dict) or saved.keys() != here.keys():
            return f"{at} has other keys than {', '.join(here)}"
        return next((text for key in here if (text := unlike(saved[key], here[key], key))), "")
    if isinstance(here, list):
        if not isinstance(saved, list) or len(saved) != len(here):
            return f"{at} is no list of {len(here)}"
        return next((text for one, other in zip(saved, here, strict=True) if (text := unlike(one, other, at))), "")
    if isinstance(here, int | float) and not isinstance(saved, int | float):
        return f"{at} is no number"
    return ""
