"""A recurrent layer that goes on, in each batch of a rank's text, from where the batch before ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn


class LSTM(nn.LSTM):
    """Works as nn.LSTM with its batch first, on inputs [batch, time, width], and returns the outputs alone.

    It keeps its hidden and cell state, cut off from the gradient (truncated back-propagation through time), as the
    start of the next batch; a batch with another number of rows starts from zeros. The state is the rank's, not the
    network's, so it is not in `state_dict`; the code that trains must save it.
    """

    state: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        goes_on = self.state is not None and self.state[0].shape[1] == x.shape[0]
        y, (hidden, cell) = super().forward(x, self.state if goes_on else None)
        self.state = hidden.detach(), cell.detach()
        return y


def states(model: nn.Module) -> list[list[Tensor]]:
    """Returns hidden and cell state of each recurrent layer; [] of one that has not begun."""
    return [list(layer.state or ()) for layer in _layers(model)]


def put(model: nn.Module, states: Sequence[Sequence[Tensor]]) -> None:
    """Lets each recurrent layer go on from its own of `states`. Raises ValueError where they are of another network."""
    for layer, state in zip(_layers(model), states, strict=True):
        layer.state = (state[0].clone(), state[1].clone()) if state else None


def reset(model: nn.Module) -> None:
    """Lets each recurrent layer start from zeros, as at the beginning of a text."""
    for layer in _layers(model):
        layer.state = None


@contextmanager
def another_text(model: nn.Module) -> Iterator[None]:
    """Lets `model` read another text from its beginning; afterwards it goes on where it was."""
    kept = states(model)
    reset(model)
    try:
        yield
    finally:
        put(model, kept)


def _layers(model: nn.Module) -> list[LSTM]:
    return [module for module in model.modules() if isinstance(module, LSTM)]
