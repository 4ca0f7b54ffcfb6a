"""Has what `wrap` and DDP's hook share: the user's process group, the algorithm for their parameters, its state."""

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from repro import algorithms
from repro.algorithms import Algorithm
from repro.clip import finite
from repro.comm import transport
from repro.comm.collective import Collective
from repro.comm.transport import GroupTransport
from repro.config import compose, groups
from repro.config.parts import Algo
from repro.config.schema import ConfigError
from repro.state_form import unlike


def make(algo: Algo, density: float | None, layers: Sequence[Tensor], device: torch.device) -> Algorithm:
    made = algorithms.load(algo, sum(x.numel() for x in layers), device, [x.shape for x in layers])
    if density is not None and algo.sparse:
        made.density = density
    return made


@torch.no_grad()
def begin(algorithm: Algorithm, layers: Sequence[Tensor]) -> None:
    """Shows an algorithm the parameters with which all ranks start; few look at them."""
    if type(algorithm).begin is not Algorithm.begin:
        algorithm.begin(torch.cat([layer.reshape(-1) for layer in layers]))


def connect(group: dist.ProcessGroup | None, device: torch.device) -> Collective:
    """Returns a Collective over the ranks of `group`, for tensors on `device`. Raises ConfigError without a group."""
    if not dist.is_initialized():
        raise ConfigError(
            "there is no process group: call torch.distributed.init_process_group first, and start the script with "
            "torchrun --nproc-per-node=2 SCRIPT"
        )
    whole = cast(dist.ProcessGroup, group or dist.group.WORLD)
    backend = dist.get_backend_config(whole)
    wire = device if f"{device.type}:nccl" in backend else torch.device("cpu")

    def again(number: int) -> GroupTransport:
        """Joins the ranks over the group's own store, as PyTorch counts what `new_group` makes in each process.

        Ranks that are in no such group would have counted fewer, and every later group of all would hang.
        """
        of_group = dist.distributed_c10d._get_process_group_store(whole)  # no public way to it before 2.15
        rank, size = whole.rank(), whole.size()
        store = dist.PrefixStore(f"repro-{of_group.add(f'repro-asides-of-{rank}', 1)}", of_group)
        limit_s = (timeout(whole, wire) or dist.distributed_c10d.default_pg_timeout).total_seconds()
        if wire.type == "cuda":
            return transport.nccl(store, rank, size, limit_s, wire)
        return transport.gloo(store, rank, size, limit_s)

    return Collective(GroupTransport(whole, wire, again))


def timeout(group: dist.ProcessGroup, wire: torch.device) -> timedelta | None:
    """Returns how long a message of the group may take; None, for PyTorch's default, where it does not say."""
    try:
        found: timedelta = group._get_backend(wire).options._timeout  # there is a public way to set it, none to ask
    except (AttributeError, RuntimeError):
        return None
    return found


def check_density(algo: Algo, density: float | None) -> None:
    """Raises ConfigError where the user has set a density, which may be done between steps, that is none."""
    if algo.sparse and density is not None:
        compose.check_value("density", density)


def asked(algo: Algo, density: float | None) -> dict[str, Any]:
    """Returns what a call asks for, as typed: the algorithm, its options, and the density of one that has it."""
    fields = dataclasses.asdict(algo)
    return {"algo": fields.pop("name"), **fields.pop("options"), **fields, "density": density if algo.sparse else None}


def check_alike(call: str, own: dict[str, Any], collective: Collective) -> None:
    """Raises ConfigError on all ranks where one has asked the `call` for something else than another has.

    Each would train a model of its own, or wait for messages of other sizes. Not in the traffic of steps.
    """
    first, *others = Collective(collective.transport).gather_objects(own)
    for rank, other in enumerate(others, 1):
        for key in {**first, **other}:
            if first.get(key, "none") != other.get(key, "none"):
                unlike = f"rank {rank} has {key}={other.get(key, 'none')}, rank 0 {key}={first.get(key, 'none')}"
                raise ConfigError(f"{unlike}: all ranks call {call} alike")


def check_optimizer(given: Any) -> None:
    if not isinstance(given, Optimizer):
        raise ConfigError(
            f"the optimizer must be a torch.optim.Optimizer, and this is a {type(given).__name__}: give the one whose "
            "step() your loop calls, a scheduler's as scheduler.optimizer"
        )


def check_momentum(algo: Algo, optimizer: Optimizer | None) -> None:
    """Raises ConfigError where the algorithm, or an option, takes the place of momentum that there is, too."""
    if optimizer is None:
        return
    taker = f"algo={algo.name}" if groups.replaces_momentum(algo.name) else algo.in_place_of_momentum
    if not taker:
        return
    for group in optimizer.param_groups:
        if group.get("momentum") or group.get("betas", (0.0,))[0]:
            raise ConfigError(
                f"{taker} takes the place of momentum, and the optimizer's on top trains to nothing: "
                "take an optimizer without, such as torch.optim.SGD(model.parameters(), lr=...)"
                + f"; its weight_decay then counts {algo.amplification:g} times less, beside an update as much larger"
                * (algo.amplification != 1)
                + (", or gain=1" if algo.gain != 1 else "")
            )


def check_finite(gradient: Tensor, instead: str) -> None:
    """Raises RuntimeError before what is not finite gets into the residual, which would keep it for good."""
    if not finite(gradient):
        raise RuntimeError(f"this rank's gradient is not finite: lower the learning rate, or clip it. {instead}")


def check_not_sparse(gradient: Tensor, shape: torch.Size) -> None:
    if gradient.is_sparse:
        raise ConfigError(
            f"a parameter of shape {tuple(shape)} has a sparse gradient, and the algorithms take dense ones: leave out "
            "sparse=True, of nn.Embedding for one"
        )


def place(algo: Algo, collective: Collective) -> dict[str, Any]:
    """Returns whose state an algorithm's is."""
    return {"algo": algo.name, "rank": collective.rank, "nodes": collective.size}


def check_place(saved: dict[str, Any], here: dict[str, Any], what: str, without: str) -> None:
    """Raises ConfigError unless the state that was saved as `what` is of this place; `without` says how to do without.

    Another rank's can be exchanged for this one's; residuals of other nodes or of another algorithm fit nowhere here.
    """
    own = {name: saved[name] for name in here}
    if own == here:
        return
    was, now = (" ".join(f"{k}={v}" for k, v in place.items()) for place in (own, here))
    instead = f"residuals fit only that algorithm on that many nodes. To go on without them, {without}"
    if {**own, "rank": here["rank"]} == here:
        instead = "each rank loads its own"
    raise ConfigError(f"this state of {what} is of {was}, here is {now}; {instead}")


def check_form(saved: Any, fresh: Algorithm, what: str) -> None:
    """Raises ConfigError unless the state that was saved fits the algorithm, which has made no step."""
    if difference := unlike(saved, fresh.state_dict()):
        raise ConfigError(
            f"this state of {what} does not fit the algorithm here: {difference}. "
            "Give it the model and the options (correction, for one) of the run that saved it"
        )
