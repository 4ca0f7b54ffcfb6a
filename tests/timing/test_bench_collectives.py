"""The whole step that is timed beside its messages: again and again the one that a run has."""

import pytest
import torch
import torch.distributed as dist
from thread_ranks import on_ranks

from repro.cluster.ranks import Rank
from repro.comm.collective import Collective
from repro.comm.traffic import Traffic
from repro.config.compose import compose
from repro.timing import bench_collectives


@pytest.mark.parametrize("algo", ["topk", "oktopk", "gtopk_exact"])
def test_a_step_that_is_timed_again_sends_as_much(algo: str) -> None:
    """The same gradient was added to what was not sent of it, over the thresholds of the first step."""
    (config,) = compose(["model=resnet20", "nodes=4", f"algo={algo}", "density=0.001"])

    def sent(collective: Collective) -> list[int]:
        rank = Rank(collective, collective, torch.device("cpu"), False, dist.HashStore())
        step, found = bench_collectives.sparse_step(config, 100_000, 100, rank), []
        for _ in range(12):
            collective.traffic = Traffic()
            step()
            found.append(collective.traffic.bytes_sent)
        return found[1:]  # the first sets thresholds

    every = on_ranks(4, sent)
    assert [len({*one}) for one in every] == [1, 1, 1, 1] and min(map(min, every)) > 0
