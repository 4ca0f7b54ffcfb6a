"""An algorithm around another one: it answers all as that one does, but for what its subclass changes."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from repro.algorithms import Algorithm
from repro.comm.collective import Collective
from repro.compression.error_feedback import CompressionErrors, ErrorFeedback
from repro.compression.wire import Wire


class Around(Algorithm):
    """Passes everything on to `inner`, both ways; a part of the interface that is new must be passed on here too."""

    def __init__(self, inner: Algorithm):
        self.inner = inner
        self.period, self.delay, self.compresses = inner.period, inner.delay, inner.compresses
        self.mixes, self.wraps, self.settles = inner.mixes, inner.wraps, inner.settles
        self.takes_shapes, self.scales, self.splits_k = inner.takes_shapes, inner.scales, inner.splits_k
        self.messages_depend_on_values, self.sends_pairs = inner.messages_depend_on_values, inner.sends_pairs

    @property
    def density(self) -> float:
        return self.inner.density

    @density.setter
    def density(self, value: float) -> None:
        self.inner.density = value

    @property
    def memory(self) -> ErrorFeedback | CompressionErrors | None:  # type: ignore[override]
        return self.inner.memory

    @property
    def residual(self) -> Tensor | None:  # type: ignore[override]
        return self.inner.residual

    @property
    def wire(self) -> Wire | None:  # type: ignore[override]
        return self.inner.wire

    @property
    def selected(self) -> int | None:
        return self.inner.selected

    @property
    def chosen(self) -> Tensor | None:
        return self.inner.chosen

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        return self.inner.step(gradient, collective)

    def begin(self, parameters: Tensor) -> None:
        self.inner.begin(parameters)

    def mix(self, parameters: Tensor, collective: Collective) -> None:
        self.inner.mix(parameters, collective)

    def wrap(self, model: nn.Module, collective: Collective) -> nn.Module:
        return self.inner.wrap(model, collective)

    def skip_warmup(self) -> None:
        self.inner.skip_warmup()

    def clear_residual(self) -> None:
        self.inner.clear_residual()

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)
