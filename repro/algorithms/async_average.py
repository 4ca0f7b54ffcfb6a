"""Model averaging in the background (BAGUA's async algorithm, arXiv:2107.01499, section 4), made repeatable.

BAGUA averages whenever its thread is ready, so no two runs are alike. Here a snapshot of the weights is taken `delay`
steps before every `period`-th step, a separate thread averages it while training continues, and the correction,
average - snapshot, is added after every `period`-th step, whether the network was fast or slow.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from repro import algorithms
from repro.clock import finish_stream
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_reduce
from repro.comm.traffic import Round, Traffic


class Algorithm(algorithms.Algorithm):
    """Averages weights in the background; each rank keeps its own momentum, which is not averaged."""

    compresses = False
    mixes = True

    def __init__(self, parameters: int, device: torch.device | str = "cpu", period: int = 4, delay: int = 2):
        if not 1 <= delay < period:
            raise ValueError(f"algo.delay={delay}: must be at least 1 and below algo.period={period}")
        self.period, self.delay, self.steps = period, delay, 0
        self.thread = ThreadPoolExecutor(1, "average", torch.set_num_threads, (torch.get_num_threads(),))
        self.correction: Future[tuple[Tensor, list[Round]]] | None = None  # and the rounds of its average

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        return gradient

    def mix(self, parameters: Tensor, collective: Collective) -> None:
        if collective.size == 1:
            return
        self.steps += 1
        if self.steps % self.period == self.period - self.delay:
            snapshot = parameters.clone()
            taken = torch.cuda.current_stream(snapshot.device).record_event() if snapshot.is_cuda else None
            self.correction = self.thread.submit(_correction, snapshot, taken, collective.aside())
        elif self.steps % self.period == 0 and self.correction is not None:
            began = time.perf_counter()
            correction, rounds = self.correction.result()
            parameters += correction.to(parameters.device)  # a state may have been loaded to another
            if correction.is_cuda:  # it is of the thread's stream, which must not take its memory while this one reads
                correction.record_stream(torch.cuda.current_stream(correction.device))
            self.correction = None
            collective.join(collective.aside(), time.perf_counter() - began)
            for done in rounds:
                collective.traffic.add(done)

    def state_dict(self) -> dict[str, Any]:
        """Waits for an average that is in progress, then returns the state."""
        if self.correction is None:
            return {"steps": self.steps, "correction": None}
        correction, rounds = self.correction.result()
        return {"steps": self.steps, "correction": [correction, [tuple(done) for done in rounds]]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps, self.correction = state["steps"], None
        saved = state["correction"]
        if saved is not None:
            correction, rounds = (saved, []) if isinstance(saved, Tensor) else saved  # checkpoints of before: no rounds
            self.correction = Future()
            self.correction.set_result((correction, [Round(*done) for done in rounds]))

    @staticmethod
    def cost(size: int, parameters: int, k: int, period: int = 4, delay: int = 2) -> Cost:
        return all_reduce(size, parameters)


def _correction(snapshot: Tensor, taken: torch.cuda.Event | None, aside: Collective) -> tuple[Tensor, list[Round]]:
    """Averages the snapshot; on a GPU on a stream of its own, beside training, from when it was `taken` on."""
    with nullcontext() if taken is None else torch.cuda.stream(torch.cuda.Stream(snapshot.device)):
        if taken is not None:
            torch.cuda.current_stream().wait_event(taken)
        correction = aside.all_reduce(snapshot.clone()).div_(aside.size).sub_(snapshot)
        finish_stream()
    rounds, aside.traffic = aside.traffic.rounds, Traffic()  # kept with the correction: both outlive a resume
    return correction, rounds
