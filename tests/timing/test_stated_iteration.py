"""Iterations whose compute is slept: what a step waits for is all in its seconds."""

import time

import pytest
import torch
import torch.distributed as dist
from thread_ranks import on_ranks

from repro.cluster.ranks import Rank
from repro.comm.collective import Collective
from repro.iteration_time import IterationTime
from repro.timing import stated_iteration
from repro.timing.one_rank import Calibration

COMPUTE_S, SENT_S = 0.04, 0.12


@pytest.mark.parametrize("ready", [[COMPUTE_S], [0.01, COMPUTE_S]])
def test_an_iteration_has_what_its_last_rank_waits_for(ready: list[float]) -> None:
    """Of a server, which sends when all others have ended, the mean over the ranks was counted."""
    calibration = Calibration(COMPUTE_S, 0.0, [], 1, 0, [], [COMPUTE_S])

    def measured(collective: Collective) -> list[IterationTime]:
        rank = Rank(collective, collective, torch.device("cpu"), False, dist.HashStore())
        rank.clock.late_ns = 10**9  # it was woken late before all this, which made each start early
        last = SENT_S if rank.number == 0 else 0.0
        plays = [lambda: None] * (len(ready) - 1) + [lambda: time.sleep(last)]
        return stated_iteration.measure(rank, calibration, plays, ready, [0.0] * len(ready), SENT_S, 2)

    for found in on_ranks(4, measured)[0]:
        assert COMPUTE_S + SENT_S <= found.total < COMPUTE_S + SENT_S + 1  # of a busy machine
        assert found.compute_s == COMPUTE_S and found.hidden_s >= 0
