"""The algorithms in a training loop of one's own (`wrap`), and inside DistributedDataParallel (`State` and `hook`)."""

# DDP reads the annotations of a hook, so they are no texts in this file.
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from repro import algorithms, config
from repro.algorithms import Algorithm
from repro.collective import Collective
from repro.network import Traffic
from repro.schema import Algo, ConfigError
from repro.transport import GroupTransport

KEY = "repro"  # of our part in the optimizer's state_dict
DENSE_STEPS = 2  # DDP forms its buckets anew after the first step, with static_graph=True after the second


def wrap(
    model: nn.Module,
    optimizer: Optimizer,
    name: str,
    density: float | None = None,
    seed: int = 0,
    group: dist.ProcessGroup | None = None,
    **options: Any,
) -> "Node":
    """From now on `optimizer.step()` steps with the update of algorithm `name`, in place of this rank's gradient.

    `name`, `density`, `seed` and `options` are those of `repro run algo=NAME density=... algo.OPTION=...`, with the
    same defaults. All ranks of `group` (default: all that torch.distributed has) call this alike; parameters and
    buffers become those of its first rank. The optimizer stays the user's own: schedulers, zero_grad and gradient
    accumulation work as before. What is clipped before the step is this rank's gradient.

    The residuals are in `optimizer.state_dict()`, so each rank saves its own, and loads it after this call.
    dgc and qadam have momentum of their own: the optimizer's must then be 0. Every rank takes every step: where a
    GradScaler skips one for itself, the others wait for it. Raises ConfigError.
    """
    algo = config.algorithm(name, options, seed, density)
    if hasattr(algorithms.of(algo), "wrap"):
        raise ConfigError(f"algo={name}: DistributedDataParallel wraps the model itself; choose algo=dense, for one")
    if isinstance(model, DistributedDataParallel):
        raise ConfigError(
            "DistributedDataParallel has averaged the gradients by then: give wrap the model inside it, "
            "trained without it, or register distributed.hook on it"
        )
    layers = trainable(model, optimizer)
    collective = connect(group, layers[0].device)
    start = Collective(collective.transport)  # counts apart from the steps
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        tensor.data.copy_(start.broadcast(tensor.data))
    node = Node(algo, density, layers, collective)
    optimizer.register_step_pre_hook(node.before_step)
    optimizer.register_step_post_hook(node.after_step)
    optimizer.register_state_dict_post_hook(node.save)
    optimizer.register_load_state_dict_pre_hook(node.load)
    return node


class Node:
    """This rank's part: `algorithm` (its `density` may be changed between steps), and the traffic of the last step."""

    def __init__(self, algo: Algo, density: float | None, layers: Sequence[nn.Parameter], collective: Collective):
        self.algo, self.layers, self.collective = algo, layers, collective
        self.known = set(map(id, layers))
        m, device = sum(layer.numel() for layer in layers), layers[0].device
        self.algorithm = make(algo, density, layers, device)
        self.gradient = torch.zeros(m, dtype=layers[0].dtype, device=device)
        self.gradients = split(self.gradient, layers)
        if algorithms.mixes(self.algorithm):
            self.weight = torch.empty_like(self.gradient)
            self.weights = split(self.weight, layers)
            self.flatten_weights()
            if hasattr(self.algorithm, "begin"):
                self.algorithm.begin(self.weight)

    @property
    def traffic(self) -> Traffic:
        """What this rank sent and received in the last step: bytes_sent, messages, rounds."""
        return self.collective.traffic

    @torch.no_grad()
    def before_step(self, optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """The ranks' update takes the gradient's place. A parameter without a gradient counts as zeros."""
        if any(one is not None for one in (*arguments[1:], *named.values())):
            raise ConfigError("optimizer.step(closure): the gradient must be there before; call backward, then step()")
        if any(id(x) not in self.known and x.grad is not None for x in parameters(optimizer)):
            raise ConfigError("the optimizer has got further parameters to train since distributed.wrap; wrap it then")
        self.collective.traffic = Traffic()
        for layer, view in zip(self.layers, self.gradients, strict=True):
            if layer.grad is None:  # zero_grad() leaves none unless it is told otherwise
                view.zero_()
            elif layer.grad is not view:
                view.copy_(layer.grad)
            layer.grad = view
        update = self.algorithm.step(self.gradient, self.collective)
        if update.data_ptr() != self.gradient.data_ptr():
            self.gradient.copy_(update)

    @torch.no_grad()
    def after_step(self, optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if algorithms.mixes(self.algorithm):
            self.flatten_weights()
            self.algorithm.mix(self.weight, self.collective)

    def flatten_weights(self) -> None:
        """Make each parameter a view into one vector, which it stays until `model.to(...)` or the like moves it."""
        for layer, view in zip(self.layers, self.weights, strict=True):
            if layer.data_ptr() != view.data_ptr():
                view.copy_(layer.data)
                layer.data = view

    def place(self) -> dict[str, Any]:
        return {"algo": self.algo.name, "rank": self.collective.rank, "nodes": self.collective.size}

    def save(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        state[KEY] = {**self.place(), "state": self.algorithm.state_dict()}

    def load(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        if KEY not in state:
            raise ConfigError("this state of the optimizer is from before distributed.wrap; load it before that call")
        own = {name: state[KEY][name] for name in self.place()}
        if own != self.place():
            was, now = (" ".join(f"{k}={v}" for k, v in place.items()) for place in (own, self.place()))
            raise ConfigError(f"this state of the optimizer is of {was}, here is {now}; each rank loads its own")
        self.algorithm.load_state_dict(state[KEY]["state"])


class State:
    """For `hook`: one algorithm for each of DDP's buckets, made as for `wrap`. Raises ConfigError.

    `density` may be changed between steps; `traffic` is that of the last step. The first two steps are dense, those
    after `load_state_dict` too: DDP then forms its buckets anew.
    """

    def __init__(
        self,
        name: str,
        density: float | None = None,
        seed: int = 0,
        group: dist.ProcessGroup | None = None,
        **options: Any,
    ):
        self.algo, self.density, self.group = config.algorithm(name, options, seed, density), density, group
        sample = algorithms.load(self.algo, 8)
        if algorithms.mixes(sample) or hasattr(sample, "wrap"):
            what = "mixes weights" if algorithms.mixes(sample) else "is DDP itself"
            raise ConfigError(f"algo={name} {what} and cannot be a hook of DDP's gradients; choose algo=dense, for one")
        self.buckets: dict[int, Algorithm] = {}
        self.saved: dict[int, Any] = {}  # states of buckets that have not come yet
        self.collective: Collective | None = None
        self.steps, self.ended = 0, True  # steps done; whether the last bucket was the last of its step
        self.thread = ThreadPoolExecutor(1, "hook", torch.set_num_threads, (torch.get_num_threads(),))

    @property
    def traffic(self) -> Traffic:
        return Traffic() if self.collective is None else self.collective.traffic

    def start(self, bucket: dist.GradBucket) -> Future[Tensor]:
        """Aggregate the bucket on a thread, while backward fills the next one; in one order on all ranks."""
        gradient, layers = bucket.buffer(), bucket.parameters()
        if self.collective is None:  # wires of its own: DDP may speak over the group meanwhile
            self.collective = connect(self.group, gradient.device).aside()
        if self.ended:
            self.collective.traffic = Traffic()
        dense, number = self.steps < DENSE_STEPS, bucket.index()
        if not dense and number not in self.buckets:
            self.buckets[number] = self.algorithm(number, layers, gradient.device)
        algorithm = None if dense else self.buckets[number]
        self.ended = bucket.is_last()
        self.steps += self.ended

        cuda = gradient.is_cuda
        stream = torch.cuda.stream(torch.cuda.current_stream(gradient.device)) if cuda else nullcontext()
        ready: Future[None] = Future(devices=[gradient.device] if cuda else [])
        done = ready.then(lambda _: self.aggregate(gradient, algorithm))  # what it raises reaches backward()

        def begin() -> None:
            with stream:
                ready.set_result(None)

        self.thread.submit(begin)
        return done

    def algorithm(self, number: int, layers: Sequence[Tensor], device: torch.device) -> Algorithm:
        made = make(self.algo, self.density, layers, device)
        if number in self.saved:
            made.load_state_dict(self.saved.pop(number))
        return made

    @torch.no_grad()
    def aggregate(self, gradient: Tensor, algorithm: Algorithm | None) -> Tensor:
        assert self.collective is not None
        if algorithm is None:
            return self.collective.all_reduce(gradient).div_(self.collective.size)
        if self.density is not None and self.algo.sparse:
            algorithm.density = self.density
        return algorithm.step(gradient, self.collective)

    def state_dict(self) -> dict[int, Any]:
        """Of this rank: each saves its own."""
        return self.saved | {number: algorithm.state_dict() for number, algorithm in self.buckets.items()}

    def load_state_dict(self, state: dict[int, Any]) -> None:
        self.saved, self.buckets, self.steps = dict(state), {}, 0


def hook(state: State, bucket: dist.GradBucket) -> Future[Tensor]:
    """For `DistributedDataParallel.register_comm_hook`: the average update for a bucket of gradients."""
    return state.start(bucket)


def trainable(model: nn.Module, optimizer: Optimizer) -> list[nn.Parameter]:
    """What of `model` the optimizer trains, in the model's order: all of one dtype and on one device."""
    held = {id(x) for x in parameters(optimizer) if x.requires_grad}
    layers = [layer for layer in model.parameters() if id(layer) in held]
    if not layers or len(layers) < len(held):
        raise ConfigError("the optimizer must train parameters of the model, and no others; give both the same model")
    kinds = {(layer.dtype, layer.device) for layer in layers}
    if len(kinds) > 1:
        found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise ConfigError(f"the parameters are {found}: all must be of one dtype on one device")
    return layers


def parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def make(algo: Algo, density: float | None, layers: Sequence[Tensor], device: torch.device) -> Algorithm:
    made = algorithms.load(algo, sum(x.numel() for x in layers), device, [x.shape for x in layers])
    if density is not None and algo.sparse:
        made.density = density
    return made


def split(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """`flat` as views of the shapes of `like`, one after the other."""
    return [part.view(x.shape) for part, x in zip(flat.split([x.numel() for x in like]), like, strict=True)]


def connect(group: dist.ProcessGroup | None, device: torch.device) -> Collective:
    """A Collective over the ranks of `group`, for tensors on `device`."""
    if not dist.is_initialized():
        raise ConfigError(
            "there is no process group: call torch.distributed.init_process_group first, and start the script with "
            "torchrun --nproc-per-node=2 SCRIPT"
        )
    whole = cast(dist.ProcessGroup, group or dist.group.WORLD)
    backend, ranks = dist.get_backend_config(whole), dist.get_process_group_ranks(whole)
    wire = device if f"{device.type}:nccl" in backend else torch.device("cpu")

    def again(number: int) -> GroupTransport:
        more = dist.new_group(ranks, backend=backend, use_local_synchronization=True)
        return GroupTransport(cast(dist.ProcessGroup, more), wire)

    return Collective(GroupTransport(whole, wire, again))
