"""Loops of a user's own on the two ranks of a torchrun, for test_distributed.py: leaves what each found in a file.

Then come the scripts that are named after the folder (both ranks have imported by now what each of them needs); what
each rank prints in one is left in SCRIPT-RANK.txt.
"""

import contextlib
import gc
import io
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from repro import algorithms, distributed
from repro.cluster.ranks import Rank
from repro.config import compose
from repro.config.compose import algorithm
from repro.config.groups import group_options, replaces_momentum
from repro.config.schema import ConfigError
from repro.timing import bench_collectives

STEPS, BATCH, DENSITY = 6, 8, 0.05
RESUMED = ("gtopk_butterfly", "powersgd", "onebit")
HOOKS = ("dense", "gtopk", "gtopk_butterfly", "powersgd", "onebit")
OPTIONS: dict[str, dict[str, Any]] = {
    "qadam": {"warmup_steps": 2},
    "local_sgd": {"period": 3},
    "sparseloco": {"period": 3},
}
DATA = torch.Generator().manual_seed(1)
INPUTS = torch.randn(STEPS, 2 * BATCH, 10, generator=DATA)
TARGETS = torch.randint(4, (STEPS, 2 * BATCH), generator=DATA)


class Network(nn.Module):
    def __init__(self, seed: int):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = nn.Linear(10, 30), nn.Linear(30, 4)
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)
        self.unused = nn.Parameter(torch.randn(5))  # no gradient reaches it
        self.register_buffer("mean", torch.randn(10))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x - self.mean))) + self.frozen[0]


def network() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Network(0)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def descent(
    model: nn.Module, momentum: float = 0.9
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=momentum, weight_decay=0.01)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)


def train(model: Callable, optimizer, scheduler, steps: range, part: slice, to_none: bool = True) -> None:
    for step in steps:
        optimizer.zero_grad(set_to_none=to_none)
        nn.functional.cross_entropy(model(INPUTS[step, part]), TARGETS[step, part]).backward()
        optimizer.step()
        scheduler.step()


def weights(model: nn.Module) -> Tensor:
    return torch.cat([x.detach().reshape(-1) for x in model.parameters()])


def plain() -> Tensor:
    """One rank, all the data, no code of ours."""
    model = Network(seed=0)
    train(model, *descent(model), range(STEPS), slice(None))
    return weights(model)


def wrapped(name: str, rank: int, own: slice, **given: Any) -> dict[str, Any]:
    """Straight, with gradients that stay, and interrupted by a checkpoint that new objects go on from."""
    found: dict[str, Any] = {}
    taken = replaces_momentum(name) or algorithm(name, OPTIONS.get(name, {})).in_place_of_momentum
    momentum = 0.0 if taken else 0.9
    for way in ("straight", "stays", "resumed"):
        model = Network(seed=rank)
        optimizer, scheduler = descent(model, momentum)
        node = distributed.wrap(model, optimizer, name, density=DENSITY, **OPTIONS.get(name, {}), **given)
        half = STEPS if way != "resumed" else STEPS // 2 + 1
        train(model, optimizer, scheduler, range(half), own, to_none=way != "stays")
        if way == "resumed":
            file = io.BytesIO()
            torch.save([model.state_dict(), optimizer.state_dict(), scheduler.state_dict()], file)
            file.seek(0)
            model = Network(seed=rank + 7)
            optimizer, scheduler = descent(model, momentum)
            node = distributed.wrap(model, optimizer, name, density=DENSITY, **OPTIONS.get(name, {}), **given)
            for one, state in zip((model, optimizer, scheduler), torch.load(file), strict=True):
                one.load_state_dict(state)
            train(model, optimizer, scheduler, range(half, STEPS), own)
        found[way], found["bytes"] = weights(model), node.traffic.bytes_sent
    return found


def hooked(name: str | None, rank: int, own: slice, **settings: Any) -> dict[str, Any]:
    """In several buckets, which DDP forms anew after the first step; `name=None`: DDP without a hook."""
    network = Network(seed=rank)
    network.unused.requires_grad_(False)
    model = DistributedDataParallel(network, bucket_cap_mb=0.0002, **settings)
    optimizer, scheduler = descent(model)
    state = distributed.State(name or "dense", density=DENSITY)
    if name:
        model.register_comm_hook(state, distributed.hook)
    train(model, optimizer, scheduler, range(STEPS), own)
    sizes = [kept["residual"].numel() for kept in state.state_dict().values() if "residual" in kept]
    return {"weights": weights(network), "sizes": sizes, "bytes": state.traffic.bytes_sent}


def resumed_hook(name: str, rank: int, own: slice, **settings: Any) -> dict[str, Any]:
    """Straight, and interrupted by a checkpoint: weights, and what the hook keeps. DDP forms buckets anew in each."""
    found: dict[str, Any] = {}
    for way, parts in {"straight": [range(STEPS)], "resumed": [range(4), range(4, STEPS)]}.items():
        saved: list[Any] = []
        for steps in parts:
            network = Network(seed=rank)
            network.unused.requires_grad_(False)
            state = distributed.State(name, density=DENSITY)
            optimizer, scheduler = descent(network)
            for one, kept in zip((network, optimizer, scheduler, state), saved, strict=bool(saved)):
                one.load_state_dict(kept)
            model = DistributedDataParallel(network, bucket_cap_mb=0.0002, **settings)
            model.register_comm_hook(state, distributed.hook)
            train(model, optimizer, scheduler, steps, own)
            file = io.BytesIO()
            torch.save([one.state_dict() for one in (network, optimizer, scheduler, state)], file)
            file.seek(0)
            saved = torch.load(file)
        found[way] = weights(network)
        found[f"{way} kept"] = [kept["residual"] for kept in state.state_dict().values() if "residual" in kept]
    return found


def other_buckets(own: slice) -> str:
    """A state of several buckets, loaded where DDP has one."""
    saved: Any = None
    for cap in (0.0002, 25):
        network = Network(seed=0)
        network.unused.requires_grad_(False)
        state = distributed.State("gtopk", density=DENSITY)
        if saved:
            state.load_state_dict(saved)
        model = DistributedDataParallel(network, bucket_cap_mb=cap)
        model.register_comm_hook(state, distributed.hook)
        try:
            train(model, *descent(model), range(4), own)
        except (ConfigError, RuntimeError) as error:
            return str(error)
        saved = state.state_dict()
    return "nothing was raised"


def averaged_twice(own: slice) -> str:
    """The module inside DDP wrapped, and trained through DDP."""
    model = DistributedDataParallel(Network(seed=0), find_unused_parameters=True)
    optimizer, scheduler = descent(model)
    distributed.wrap(model.module, optimizer, "dense")
    try:
        train(model, optimizer, scheduler, range(1), own)
    except ConfigError as error:
        return str(error)
    return "nothing was raised"


def used_by_one(rank: int, own: slice) -> Tensor:
    """A parameter that rank 1 alone has a gradient for: the change of it."""
    model = Network(seed=0)
    optimizer, _ = descent(model)
    distributed.wrap(model, optimizer, "dense")
    before = model.unused.detach().clone()
    loss = nn.functional.cross_entropy(model(INPUTS[0, own]), TARGETS[0, own])
    (loss + (model.unused.sum() if rank else 0.0)).backward()
    optimizer.step()
    return model.unused.detach() - before


def overflowed(rank: int, own: slice) -> dict[str, Any]:
    """A GradScaler, and in the fifth step a gradient of rank 1 that is not finite: in which steps weights moved."""
    network = Network(seed=0)
    network.unused.requires_grad_(False)
    model = DistributedDataParallel(network)
    optimizer, _ = descent(model)
    state = distributed.State("gtopk", density=DENSITY, on_nonfinite="skip")
    model.register_comm_hook(state, distributed.hook)
    scaler, moved = torch.amp.GradScaler("cpu"), []
    for step in range(8):
        optimizer.zero_grad()
        before = weights(network)
        inputs = INPUTS[step % STEPS, own] * (1e38 if rank and step == 4 else 1)
        loss = nn.functional.cross_entropy(model(inputs), TARGETS[step % STEPS, own])
        scaler.scale(loss * (1e38 if rank and step == 4 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()
        moved.append(not torch.equal(before, weights(network)))
    (kept,) = (one["residual"] for one in state.state_dict().values() if "residual" in one)
    return {"moved": moved, "scale": scaler.get_scale(), "weights": weights(network), "residual": kept}


def broken_hook(own: slice) -> str:
    model = DistributedDataParallel(Network(seed=0), find_unused_parameters=True)
    state = distributed.State("dense")

    def fail(*_: Any) -> Tensor:
        raise ValueError("the algorithm failed")

    state.aggregate = fail  # type: ignore[method-assign]
    model.register_comm_hook(state, distributed.hook)
    try:
        train(model, *descent(model), range(1), own)
    except RuntimeError as error:
        return str(error)
    return "nothing was raised"


def benched(hook: str) -> list[int]:
    """Bytes that each rank sends for one matrix of 200 x 200 inside DDP, as `repro bench collectives` finds them."""
    collective = distributed.connect(None, torch.device("cpu"))
    rank = Rank(collective, collective, torch.device("cpu"), False, dist.HashStore())
    algorithm = algorithms.load(compose.algorithm("ddp", {"hook": hook, "rank": 3}), 1)
    schedule, step = bench_collectives.ddp(algorithm, 200 * 200, rank)
    step()
    return [sum(done.sent * done.repeat for done in rounds) for rounds in schedule]


def main(folder: Path, scripts: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    own = slice(rank * BATCH, (rank + 1) * BATCH)
    names = [name for name in group_options("algo") if name != "ddp"]
    found = {
        "plain": plain(),
        "wrapped": {name: wrapped(name, rank, own) for name in names},
        "group": wrapped("async_average", rank, own, group=dist.new_group([0, 1]))["straight"],
        "alone": wrapped("gtopk", rank, slice(None), group=[dist.new_group([one]) for one in (0, 1)][rank]),
        "ddp": hooked(None, rank, own)["weights"],
        "hooked": {name: hooked(name, rank, own) for name in HOOKS},
        "static": hooked("gtopk_butterfly", rank, own, static_graph=True),
        "benched": {hook: benched(hook) for hook in ("none", "fp16", "powersgd")},
        "resumed_hook": {name: resumed_hook(name, rank, own) for name in RESUMED},
        "resumed_static": resumed_hook("gtopk", rank, own, static_graph=True),
        "other_buckets": other_buckets(own),
        "averaged_twice": averaged_twice(own),
        "used_by_one": used_by_one(rank, own),
        "broken_hook": broken_hook(own),
        "overflowed": overflowed(rank, own),
    }
    torch.save(found, folder / f"rank-{rank}.pt")
    # A store for each script: that of torchrun's agent holds the keys of the first group, and a second would read them.
    address = os.environ["MASTER_ADDR"]
    stores = [dist.TCPStore(address, 0, is_master=True, multi_tenant=True) for _ in scripts] if rank == 0 else []
    ports = [store.port for store in stores] or [0] * len(scripts)
    dist.broadcast_object_list(ports)
    dist.destroy_process_group()
    for script, port in zip(scripts, ports, strict=True):
        os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": str(port)}
        # Not through torchrun's standard output: there both ranks' lines and gloo's own meet, in any order.
        with (folder / f"{Path(script).stem}-{rank}.txt").open("w") as printed, contextlib.redirect_stdout(printed):
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
    gc.freeze()  # at the end torch would be looked through for garbage, for a second
