"""Loads algorithms by name: `algo=NAME` is the class `Algorithm` in `repro/algorithms/NAME.py`."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from repro.comm import bucket_spans
from repro.comm.bucket_spans import Shapes
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, in_turn
from repro.compression.error_feedback import CompressionErrors, ErrorFeedback
from repro.compression.wire import Wire
from repro.config.parts import Algo
from repro.config.schema import Config, ConfigError
from repro.density import entries
from repro.rng import derive

EXAMPLE = "docs/adding.md shows both files of an algorithm"


class Algorithm:
    """Defines how P ranks turn their gradients into one update: the whole interface of an algorithm, with defaults.

    Each file's class is called as `Algorithm(parameters, device, **options)` with the options of its YAML, and with
    `selector` if it is sparse. Residuals live on `device`. A ValueError for an option's value is shown to the user.
    """

    density = 1.0  # the fraction of the m parameters to send; the trainer sets it before every step
    period = 1  # steps until its messages repeat; an option of this name sets it
    delay = 0  # steps that background messages may take before a step waits for them; an option of this name sets it
    compresses = True  # whether it makes what it sends smaller, which takes time; an option `hook` does in any case
    mixes = False  # whether its ranks hold different weights, which `mix` changes
    wraps = False  # whether its messages are sent inside backward, by the module that `wrap` returns
    settles = False  # whether its first backward sends other messages than later ones, so that a resume repeats it
    takes_shapes = False  # whether the constructor also takes `shapes` of the model's layers, in the vector's order
    scales = False  # whether the update is scaled, so that one rank alone at density 1 does not do plain SGD
    messages_depend_on_values = False  # whether the number or the sizes of messages depend on gradient values
    splits_k = False  # whether a message holds a part of k, as k / P, so that to know its size all k must be selected
    memory: ErrorFeedback | CompressionErrors | None = None  # what keeps its residuals, if one of these does
    residual: Tensor | None = None  # without `memory`, what this rank has not sent yet [m], if it keeps that
    sends_pairs = False  # whether it sends sparse pairs, so that the constructor also takes `wire`, their format
    wire: Wire | None = None  # what packs its messages, if it sends pairs

    def __init__(self, parameters: int, device: torch.device | str = "cpu"):
        pass

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        """Returns the average update [m] from this rank's `gradient` [m]; all ranks get the same bits, unless it mixes.

        The update may reuse the gradient's storage.
        """
        raise NotImplementedError

    def begin(self, parameters: Tensor) -> None:
        """Is called before the first step with the `parameters` [m] from which all ranks start."""

    def mix(self, parameters: Tensor, collective: Collective) -> None:
        """Is called after every SGD step and may change this rank's `parameters` [m] in place."""

    def wrap(self, model: nn.Module, collective: Collective) -> nn.Module:
        """Returns the module to train in place of `model`; called once, before the first step."""
        return model

    def skip_warmup(self) -> None:
        """Skips to the phase in which most steps of a run are, for callers that record or time one step."""

    def clear_residual(self) -> None:
        """Forgets what this rank has not sent yet, for callers that give it the same gradient again.

        Else it would grow by as much at every step, which it does not in a run, over thresholds of a step before.
        """
        residual, _ = residuals(self)
        if residual is not None:
            residual.zero_()

    @property
    def selected(self) -> int | None:
        """Returns the size of this rank's last selection, which is not always k; None if it selects nothing."""
        return None if self.memory is None else self.memory.selected

    @property
    def chosen(self) -> Tensor | None:
        """Returns the indices of this rank's last selection; None if it selects nothing."""
        return None if self.memory is None else self.memory.chosen

    def state_dict(self) -> dict[str, Any]:
        return {} if self.memory is None else self.memory.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.memory is not None:
            self.memory.load_state_dict(state)

    @staticmethod
    def cost(size: int, parameters: int, k: int, *args: Any, **options: Any) -> Cost:
        """Returns what one step of `size` ranks sends; `cost` in the algorithm's YAML says the same in words."""
        raise NotImplementedError

    @staticmethod
    def path(cost: Cost, size: int, **options: Any) -> Cost:
        """Returns the chain of messages that a step waits for, where each of `size` nodes sends at most `cost`."""
        return cost

    @staticmethod
    def own_bucket_mb(**options: Any) -> float | None:
        """Returns the size of the buckets in which the module that `wrap` returns sends gradients."""
        return None


def residuals(algorithm: Algorithm) -> tuple[Tensor | None, Tensor | None]:
    """Returns what this rank has not sent yet [m], and what it keeps for all of its own chunk [ceil(m/P)], if it does.

    To change them in place changes what the next step adds.
    """
    memory = algorithm.memory
    return (algorithm.residual, None) if memory is None else (memory.residual, memory.server_residual)


def of(algo: Algo) -> type[Algorithm]:
    """Returns the class that `algo` names; it answers what does not depend on options, without an instance."""
    try:
        kind: type[Algorithm] = importlib.import_module(name := f"repro.algorithms.{algo.module}").Algorithm
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ConfigError(f"algo={algo.name}: there is no repro/algorithms/{algo.module}.py. {EXAMPLE}") from None
    return kind


def period(algo: Algo) -> int:
    """Returns `Algorithm.period` of the algorithm that `algo` names, with its options."""
    return int(algo.options.get("period", of(algo).period))


def delay(algo: Algo) -> int:
    """Returns `Algorithm.delay` of the algorithm that `algo` names, with its options."""
    return int(algo.options.get("delay", of(algo).delay))


def compresses(algo: Algo) -> bool:
    """Returns `Algorithm.compresses` of the algorithm that `algo` names, with its options."""
    return of(algo).compresses or algo.options.get("hook", "none") != "none"


def cost(algo: Algo, size: int, parameters: int, k: int, **more: Any) -> Cost:
    """Returns `Algorithm.cost` of the algorithm that `algo` names, with its options and its wire format."""
    wire = {"wire": algo.wire} if of(algo).sends_pairs else {}
    return of(algo).cost(size, parameters, k, **wire, **algo.options, **more)


def overlaps(config: Config) -> bool:
    """Returns whether messages are sent during backward."""
    return config.overlap == "on" or of(config.algo).wraps


def spans(config: Config, shapes: Shapes) -> list[slice]:
    """Returns the slices of a flat gradient of layers with `shapes` that are sent separately, in their order."""
    bucket_mb = of(config.algo).own_bucket_mb(**config.algo.options) or config.bucket_mb
    return [slice(0, sum(map(math.prod, shapes)))] if bucket_mb is None else bucket_spans.spans(shapes, bucket_mb)


def step_path(config: Config, shapes: Shapes) -> Cost:
    """Returns the messages that a step of a run waits for: of a gradient of layers with `shapes`, in its buckets."""
    parts = []
    for span in spans(config, shapes):
        size, held = span.stop - span.start, bucket_spans.shapes_inside(shapes, span)
        more = {"shapes": held} if of(config.algo).takes_shapes else {}
        sent = cost(config.algo, config.nodes, size, entries(config.density, size), **more)
        parts.append(of(config.algo).path(sent, config.nodes, **config.algo.options))
    return in_turn(*parts)


def load(
    algo: Algo, parameters: int, device: torch.device | str = "cpu", shapes: Sequence[Sequence[int]] | None = None
) -> Algorithm:
    """Makes the algorithm that `algo` names, for `parameters` entries in layers of `shapes`. Raises ConfigError."""
    make: Any = of(algo)
    given: dict[str, Any] = {"selector": algo.selector} if algo.sparse else {}
    if make.sends_pairs:
        given["wire"] = algo.wire
    if make.takes_shapes:
        given["shapes"] = shapes
    try:
        inspect.signature(make).bind(parameters, device, **given, **algo.options)
    except TypeError as error:
        raise ConfigError(
            f"algo={algo.name}: the class in repro/algorithms/{algo.module}.py does not take what "
            f"conf/algo/{algo.name}.yaml gives its constructor: {error}. {EXAMPLE}"
        ) from None
    try:
        algorithm: Algorithm = make(parameters, device, **given, **algo.options)
    except (ValueError, KeyError) as error:
        raise ConfigError(f"algo={algo.name}: {error}") from error
    if not algo.corrected:
        return algorithm
    wrapper: Any = importlib.import_module("repro.algorithms._corrected").Corrected  # which imports Algorithm from here
    corrected: Algorithm = wrapper(
        algorithm, parameters, device, algo.correction, algo.mask, algo.clip, algo.boost, algo.gain
    )
    return corrected


def of_bucket(algo: Algo, number: int) -> Algo:
    """Returns the choice for the `number`-th bucket of a gradient, so that no two buckets draw the same."""
    if not number or "seed" not in algo.options:
        return algo
    return replace(algo, options={**algo.options, "seed": derive(algo.options["seed"], "bucket", number)})


def one_step(algorithm: Algorithm, gradient: Tensor, collective: Collective) -> None:
    """Runs one whole step of an algorithm without a model, for callers that record or time it."""
    algorithm.mix(algorithm.step(gradient, collective), collective)
