"""The arithmetic of a network's forward and backward pass, by the key `precision`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

READ = (torch.conv2d, torch.nn.functional.linear)  # by autocast in bfloat16: those of the networks here, but not LSTMs
ROUNDED = "float32 on rounded numbers"


def arithmetic(precision: str, device: str) -> AbstractContextManager[object]:
    """Returns what a forward pass runs in: torch's autocast, or `Rounded` where a CPU has no bfloat16 of its own.

    `precision`: float32 or bfloat16. `device`: the type, cpu or cuda.
    """
    kind = of_bfloat16(precision, device)
    if kind is None:
        return nullcontext()
    return Rounded() if kind == ROUNDED else torch.autocast(device, torch.bfloat16)


def of_bfloat16(precision: str, device: str) -> str | None:
    """Returns which arithmetic of bfloat16 that is, for provenance.json; None in float32."""
    if precision != "bfloat16":
        return None
    return ROUNDED if device == "cpu" and emulates() else "autocast"


@functools.cache  # asked before each forward pass
def emulates() -> bool:
    """Tells whether torch would compute bfloat16 on this CPU instruction by instruction, several times too slowly."""
    able = torch.cpu.get_capabilities()
    return able["architecture"] == "x86_64" and not able["avx512_bf16"]


class Rounded(TorchFunctionMode):
    """Autocast to bfloat16 whose layers compute in float32 with what they read, and what they return, rounded.

    Those are the numbers of a processor with bfloat16: it multiplies exactly and sums in float32 as well. Only the
    order of sums differs. Backward follows from the same casts, so that gradients are rounded where its are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.autocast = torch.autocast("cpu", torch.bfloat16)  # of everything else

    def __enter__(self) -> Rounded:
        self.autocast.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self.autocast.__exit__(*exception)

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function not in READ:
            return function(*args, **(kwargs or {}))
        with torch.autocast("cpu", enabled=False):
            named = {name: _rounded(value) for name, value in (kwargs or {}).items()}
            return function(*map(_rounded, args), **named).bfloat16()


def _rounded(x: Any) -> Any:
    """Returns the bfloat16 nearest to each entry, as float32; what is no tensor as it is."""
    return x.bfloat16().float() if isinstance(x, Tensor) else x
