"""What `repro bench collectives` measures, where that needs no lab."""

import pytest
import torch
import torch.distributed as dist
from parallel import on_ranks

from repro import algorithms, bench, config
from repro.collective import Collective
from repro.ranks import Rank

M = 40_000  # 200 x 200


@pytest.mark.parametrize(("hook", "elements", "itemsize"), [("none", M, 4), ("fp16", M, 2), ("powersgd", 3 * 400, 4)])
def test_ddp_and_its_hooks_send_for_one_matrix_what_they_publish(hook, elements, itemsize):
    algo = config.algorithm("ddp", {"hook": hook, "rank": 3})

    def body(collective: Collective) -> int:
        rank = Rank(collective, Collective(collective.transport), torch.device("cpu"), False, dist.HashStore())
        schedule, step = bench.ddp(algorithms.load(algo, 1), M, rank)
        step()
        assert len(schedule) == 2 and not collective.traffic.rounds
        return sum(done.sent * done.repeat for done in schedule[collective.rank])

    assert on_ranks(2, body) == [elements * itemsize] * 2
