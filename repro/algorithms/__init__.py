"""One file per algorithm, found by its name: `algo=NAME` is `repro/algorithms/NAME.py` and its class `Algorithm`."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from torch import Tensor

from repro.collective import Collective


class Algorithm(Protocol):
    """How P ranks turn their gradients into one update.

    Constructed as `Algorithm(parameters, selector=..., **options)`, with the options of its YAML file.
    """

    density: float  # the fraction of the m parameters to send; the trainer sets it before every step

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        """The average update [m] for this rank's `gradient` [m]: the same bits on every rank.

        The gradient's storage may be reused for the update.
        """
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def load(file: str, parameters: int, **options: Any) -> Algorithm:
    """The algorithm in `repro/algorithms/<file>.py` for a model of `parameters` entries."""
    module = importlib.import_module(f"repro.algorithms.{file}")
    return module.Algorithm(parameters, **options)
