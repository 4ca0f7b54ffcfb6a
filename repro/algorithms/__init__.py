"""One file per algorithm, found by its name: `algo=NAME` is `repro/algorithms/NAME.py` and its class `Algorithm`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor

from repro.collective import Collective
from repro.schema import Algo, ConfigError


class Algorithm(Protocol):
    """How P ranks turn their gradients into one update.

    Constructed as `Algorithm(parameters, device, selector=..., **options)`: `selector` if it is sparse, and the options
    of its YAML file. Residuals live on `device`. A ValueError for an option's value is shown to the user.
    """

    density: float  # the fraction of the m parameters to send; the trainer sets it before every step

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        """The average update [m] for this rank's `gradient` [m]: the same bits on every rank.

        The gradient's storage may be reused for the update.
        """
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Mixing(Algorithm, Protocol):
    """An algorithm that mixes weights too: its ranks hold different ones.

    Its `step` gives each rank an update of its own, as a rule the rank's gradient. That it has `mix` is what tells
    the trainer not to compare the ranks' parameters, to save each rank's own, and to evaluate their average. Where
    it has `begin`, that is called before the first step with the parameters that all ranks begin with.
    """

    def mix(self, parameters: Tensor, collective: Collective) -> None:
        """Called after every SGD step: change this rank's `parameters` [m] in place."""
        ...


def mixes(algorithm: Algorithm) -> TypeGuard[Mixing]:
    return hasattr(algorithm, "mix")


def period(algorithm: Algorithm) -> int:
    """Steps until its messages repeat: its attribute `period`, 1 if it has none. Per step means over that many."""
    return getattr(algorithm, "period", 1)


def one_step(algorithm: Algorithm, gradient: Tensor, collective: Collective) -> None:
    """All that an algorithm does in one step, without a model, for those who record or time it."""
    update = algorithm.step(gradient, collective)
    if mixes(algorithm):
        algorithm.mix(update, collective)


def skip_warmup(algorithm: Algorithm) -> None:
    """To the phase that most steps of a run are in, for those who record or time one: its `skip_warmup`, if any."""
    getattr(algorithm, "skip_warmup", lambda: None)()


def messages_depend_on_values(algorithm: Algorithm) -> bool:
    """Its attribute of that name: their sizes, or how many there are."""
    return getattr(algorithm, "messages_depend_on_values", False)


def of(algo: Algo) -> Any:
    """The class that `algo` names."""
    return importlib.import_module(f"repro.algorithms.{algo.module}").Algorithm


def load(
    algo: Algo, parameters: int, device: torch.device | str = "cpu", shapes: Sequence[Sequence[int]] | None = None
) -> Algorithm:
    """The algorithm that `algo` names, for a model of `parameters` entries. Raises ConfigError.

    `shapes` of the model's layers, in the vector's order, go to an algorithm that asks for them.
    """
    make = of(algo)
    given: dict[str, Any] = {"selector": algo.selector} if algo.sparse else {}
    if "shapes" in inspect.signature(make).parameters:
        given["shapes"] = shapes
    try:
        return make(parameters, device, **given, **algo.options)
    except (ValueError, KeyError) as error:
        raise ConfigError(f"algo={algo.name}: {error}") from error
