"""Ranks that train in a group of some leave PyTorch's count of groups alone, so that groups of all can follow."""

import multiprocessing
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from repro import distributed

WAYS = ("hook", "wrap")


def step(way: str, group: dist.ProcessGroup) -> None:
    model: nn.Module = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    call = model
    if way == "hook":
        call = DistributedDataParallel(model, process_group=group)
        call.register_comm_hook(distributed.State("gtopk", density=0.5, group=group), distributed.hook)
    else:
        distributed.wrap(model, optimizer, "async_average", group=group, period=2, delay=1)
    for _ in range(4):
        call(torch.ones(2, 6)).sum().backward()
        optimizer.step()


def rank(number: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=number, world_size=3, timeout=timedelta(seconds=15)
    )
    some, whole = dist.new_group([0, 1]), dist.group.WORLD
    for way in WAYS:
        if number < 2:
            step(way, some)
        step(way, whole)
        total = torch.ones(1)
        dist.all_reduce(total, group=dist.new_group([0, 1, 2]))
        assert total == 3
        (folder / f"{way}-{number}").touch()
    dist.destroy_process_group()


def test_groups_of_all_can_follow_one_of_some(tmp_path: Path) -> None:
    """A hook made one more group, on those ranks alone, by a count that all ranks must share: the next one hung.

    Both ways of one's own loop take turns in the same processes, as a start takes longer than all that is done here.
    """
    context = multiprocessing.get_context("forkserver")
    ranks = [context.Process(target=rank, args=(number, tmp_path)) for number in range(3)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(60)
        one.kill()
    assert [one.exitcode for one in ranks] == [0, 0, 0]
    assert {path.name for path in tmp_path.glob("*-*")} >= {f"{way}-{number}" for way in WAYS for number in range(3)}
