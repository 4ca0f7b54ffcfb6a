"""Knows which parameters are in which DDP bucket, so that a resumed run continues with its residuals.

DDP begins with one set of buckets and forms them anew after its first step (its second with static_graph=True), by the
order in which gradients come. A resumed run has a new DDP, which begins so again, while the residuals that were saved
are those of the final buckets. For these steps `Layout` puts the whole gradient together as the final buckets have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from repro.config.schema import ConfigError

OTHERS = (
    "DistributedDataParallel has formed other buckets than in the run whose State was loaded, so its "
    "residuals fit none: give it the same model, bucket_cap_mb and static_graph, and register the hook before the "
    "first backward, in that run as in this one"
)


@dataclass
class Layout:
    """Numbers parameters by their places in the buckets of DDP's first step, which are alike after a resume."""

    buckets: dict[int, list[int]] = field(default_factory=dict)  # the final ones
    shapes: list[list[int]] = field(default_factory=list)  # by number, as saved; none in states from before
    parameters: list[Tensor] = field(default_factory=list)  # by number
    numbers: dict[int, int] = field(default_factory=dict)  # of a parameter, by its id()
    gradients: dict[int, Tensor] = field(default_factory=dict)  # by number, of the step in progress

    def first(self, parameters: Sequence[Tensor]) -> None:
        """Numbers the parameters of a bucket of DDP's first step."""
        for parameter in parameters:
            self.numbers[id(parameter)] = len(self.parameters)
            self.parameters.append(parameter)

    def check(self) -> None:
        """Raises ConfigError where the first step's parameters are not in the order of the run that was saved."""
        if self.shapes and self.shapes != self.ordered():
            raise ConfigError(OTHERS)

    def ordered(self) -> list[list[int]]:
        """Returns the shapes of the parameters, or as saved until they have come."""
        return [list(parameter.shape) for parameter in self.parameters] or self.shapes

    def final(self, bucket: int, parameters: Sequence[Tensor]) -> None:
        """Keeps which parameters a final bucket has. Raises ConfigError where the saved one had others."""
        if any(id(parameter) not in self.numbers for parameter in parameters):
            raise ConfigError("a State is of one DistributedDataParallel: make another for each model")
        found = [self.numbers[id(parameter)] for parameter in parameters]
        if self.buckets.setdefault(bucket, found) != found:
            raise ConfigError(OTHERS)

    def members(self, bucket: int) -> list[Tensor]:
        """Returns the parameters of a final bucket. Raises ConfigError where the model has no such parameters."""
        if max(self.buckets[bucket]) >= len(self.parameters):
            raise ConfigError(OTHERS)
        return [self.parameters[number] for number in self.buckets[bucket]]

    def hold(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Keeps the gradients of a bucket until the step has all of them."""
        self.gradients |= {self.numbers[id(p)]: gradient for p, gradient in zip(parameters, gradients, strict=True)}

    def aggregate(self, step: Callable[[int, Tensor], Tensor]) -> None:
        """Replaces the gradients held by `step(bucket, its gradient)`, final bucket after final bucket."""
        for bucket, members in sorted(self.buckets.items()):
            parts = [self.gradients[number] for number in members]
            update = step(bucket, torch.cat([part.reshape(-1) for part in parts]))
            for part, own in zip(parts, update.split([part.numel() for part in parts]), strict=True):
                part.copy_(own.view_as(part))
        self.gradients = {}
