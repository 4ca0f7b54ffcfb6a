"""What all ranks selected, kept, lost and sent in chosen steps: the data of three figures, written to
`recorded.json`."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from repro.algorithms import Algorithm, period
from repro.collective import Collective
from repro.schedule import entries
from repro.sparse import select

LARGEST_SELECTION = 2_000  # k * P beyond which the single entries are not kept: they would fill the summaries


class Probe:
    """An algorithm that behaves as the one it wraps and looks at the steps in `steps`.

    `control` carries what the probe gathers, so `collective` counts the algorithm's own traffic alone.
    """

    def __init__(self, inner: Algorithm, control: Collective, steps: Collection[int], file: Path, step: int = 0):
        self.inner, self.control, self.steps, self.file, self.at = (
            inner,
            control,
            frozenset(steps),
            file,
            step,
        )

    @property
    def period(self) -> int:
        return period(self.inner)

    @property
    def density(self) -> float:
        return self.inner.density

    @density.setter
    def density(self, value: float) -> None:
        self.inner.density = value

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        self.at += 1
        if self.at not in self.steps:
            return self.inner.step(gradient, collective)
        held = gradient + self._residual(gradient)
        first = len(collective.traffic.rounds)
        update = self.inner.step(gradient, collective)
        record = self._record(held, update, collective.traffic.rounds[first:])
        if self.control.rank == 0:
            self._write(record)
        return update

    def _residual(self, like: Tensor) -> Tensor:
        return self.inner.state_dict().get("residual", torch.zeros_like(like))

    def _record(self, held: Tensor, update: Tensor, rounds: list[Any]) -> dict[str, Any]:
        """`held` [m] is the gradient plus the residual before the step. Mass is the sum of magnitudes."""
        size, k = self.control.size, entries(self.inner.density, held.numel())
        local = select(held, k)
        before = self.control.all_reduce(held.double())
        after = self.control.all_reduce(self._residual(held).double())
        selected = self.control.all_reduce(local.value.double().abs().sum()[None])
        kept = update.nonzero().squeeze(1)
        record: dict[str, Any] = {
            "step": self.at,
            "nodes": size,
            "parameters": held.numel(),
            "k": k,
            "kept": kept.numel(),
            "held_mass": float(before.abs().sum()),
            "selected_mass": float(selected),
            "lost_mass": float((before - after - update.double() * size).abs().sum()),
            "schedule": self.control.gather_objects([tuple(done) for done in rounds]),
        }
        if k * size <= LARGEST_SELECTION:
            own = {"index": local.index.tolist(), "value": local.value.tolist()}
            record["selections"] = self.control.gather_objects(own)
            record["result"] = {"index": kept.tolist(), "value": (update[kept] * size).tolist()}
        return record

    def _write(self, record: dict[str, Any]) -> None:
        old = json.loads(self.file.read_text()) if self.file.exists() else []
        records = [other for other in old if other["step"] < record["step"]] + [record]
        unfinished = self.file.with_suffix(".part")
        unfinished.write_text(json.dumps(records))
        unfinished.replace(self.file)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)
