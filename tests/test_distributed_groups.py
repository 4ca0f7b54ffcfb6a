"""Ranks that train in a group of some leave PyTorch's count of groups alone, so that groups of all can follow."""

import os
import subprocess
from pathlib import Path

from cli_process import torchrun

ROOT = Path(__file__).parents[1]
SCRIPT = """
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from repro import distributed

def step(way, group):
    model = nn.Linear(6, 3)
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

dist.init_process_group("gloo", timeout=timedelta(seconds=15))
some, whole = dist.new_group([0, 1]), dist.group.WORLD
for way in ("hook", "wrap"):
    print(f"{way} is next\\n", end="", flush=True)  # at once, as all ranks write to one pipe
    if dist.get_rank() < 2:
        step(way, some)
    step(way, whole)
    total = torch.ones(1)
    dist.all_reduce(total, group=dist.new_group([0, 1, 2]))
    assert total == 3
dist.destroy_process_group()
"""


def test_groups_of_all_can_follow_one_of_some(tmp_path: Path) -> None:
    """A hook made one more group, on those ranks alone, by a count that all ranks must share: the next one hung.

    Both ways of one's own loop take turns in one start of torchrun, as a start takes longer than all that is done here.
    """
    (tmp_path / "three.py").write_text(SCRIPT)
    command = [*torchrun(3, tmp_path / "logs"), "three.py"]
    here = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.splitlines().count("wrap is next") == 3
