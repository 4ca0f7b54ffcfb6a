"""Records what all ranks selected, kept, lost and sent in chosen steps in `recorded.json`, for three figures."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from repro.algorithms import Algorithm, residuals
from repro.algorithms._around import Around
from repro.comm.collective import Collective
from repro.compression.sparse import Sparse, select
from repro.density import entries
from repro.json_text import json_text
from repro.runs.recorded import records
from repro.whole_files import write_whole

LARGEST_SELECTION = 2_000  # k * P beyond which single entries are not recorded: they would fill the summaries


class StepRecorder(Around):
    """Behaves as the algorithm `inner` and records the steps in `steps`; `at` says which one is being made.

    `control` carries what it gathers, so `collective` counts only the algorithm's own traffic.
    """

    def __init__(
        self, inner: Algorithm, control: Collective, steps: Collection[int], file: Path, at: Callable[[], int]
    ):
        super().__init__(inner)
        self.control, self.steps, self.file, self.at = control, frozenset(steps), file, at

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        number = self.at()
        if number not in self.steps:  # which counts those that are skipped, of which this sees nothing
            return self.inner.step(gradient, collective)
        held = gradient + self._residual(gradient)
        first = len(collective.traffic.rounds)
        update = self.inner.step(gradient, collective)
        record = {"step": number, **self._record(held, update, collective.traffic.rounds[first:])}
        if self.control.rank == 0:
            self._write(record)
        return update

    def _residual(self, like: Tensor) -> Tensor:
        """Returns what this rank keeps [m]; of the chunk that it owns, that is also what it keeps for all ranks."""
        kept, server = residuals(self.inner)
        kept = torch.zeros_like(like) if kept is None else kept
        if server is None:
            return kept
        kept = kept.clone()
        own = kept[self.control.rank * len(server) :][: len(server)]
        own += server[: len(own)]
        return kept

    def _record(self, held: Tensor, update: Tensor, rounds: list[Any]) -> dict[str, Any]:
        """Describes a step. `held` [m] is the gradient plus the residual before it; mass is the sum of magnitudes."""
        size, k = self.control.size, entries(self.density, held.numel())
        local = self._selection(held, k)
        before = self.control.all_reduce(held.double())
        after = self.control.all_reduce(self._residual(held).double())
        selected = self.control.all_reduce(local.value.double().abs().sum()[None])
        kept = update.nonzero().squeeze(1)
        record: dict[str, Any] = {
            "nodes": size,
            "parameters": held.numel(),
            "k": k,
            "kept": kept.numel(),
            "held_mass": float(before.abs().sum()),
            "selected_mass": float(selected),
            "lost_mass": float((before - after - update.double() * size).abs().sum()),
            "schedule": self.control.gather_objects([tuple(done)[:5] for done in rounds]),  # no `segments`, `header`
        }
        if k * size <= LARGEST_SELECTION:
            selection = {"index": local.index.tolist(), "value": local.value.tolist()}
            record["selections"] = self.control.gather_objects(selection)
            record["result"] = {"index": kept.tolist(), "value": (update[kept] * size).tolist()}
        return record

    def _selection(self, held: Tensor, k: int) -> Sparse:
        """Returns what this rank selected; for algorithms that keep no selection, what its k largest entries were."""
        if self.inner.chosen is None:
            return select(held, k)
        index = self.inner.chosen.sort().values
        return Sparse(index, held[index.long()])

    def _write(self, record: dict[str, Any]) -> None:
        earlier = [other for other in records(self.file) or [] if other["step"] < record["step"]]
        write_whole(self.file, json_text([*earlier, record]))
