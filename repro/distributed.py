"""Runs the algorithms in your own training loop (`wrap`), or inside DistributedDataParallel (`State` and `hook`)."""

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from repro import algorithms, user_loop
from repro.comm.collective import Collective
from repro.comm.traffic import Traffic
from repro.config import compose
from repro.config.parts import Algo
from repro.config.schema import ConfigError
from repro.ddp_hook import State, hook
from repro.user_loop import connect

__all__ = ["Node", "State", "connect", "hook", "wrap"]
SHARDED = {"FullyShardedDataParallel", "DTensor"}  # by name, as to import them takes time
KEY = "repro"  # of our part in the optimizer's state_dict
WITHOUT = f'type `del state["state"]["{KEY}"]`, load that state, and call distributed.wrap then'
AVERAGED = (
    "DistributedDataParallel averages the gradients, and distributed.wrap would once more: train the model that is "
    "inside it without it, or register distributed.hook on it in place of wrap"
)


def wrap(
    model: nn.Module,
    optimizer: Optimizer,
    name: str,
    density: float | None = None,
    seed: int = 0,
    group: dist.ProcessGroup | None = None,
    **options: Any,
) -> "Node":
    """Makes `optimizer.step()` apply the update of algorithm `name` in place of this rank's gradient.

    `name`, `density`, `seed` and `options` are those of `repro run algo=NAME density=... algo.OPTION=...`, with the
    same defaults; the learning rate, momentum and warm-up of the density, which some YAMLs set beside them, are not
    taken over. All ranks of `group` (default: all that torch.distributed has) call this alike; parameters and buffers
    become those of its first rank. The optimizer stays the user's own: schedulers, zero_grad and gradient
    accumulation work as before. What is clipped before the step is this rank's gradient; one that is not finite raises
    RuntimeError. Where a momentum or gain of the algorithm takes the place of the optimizer's, updates are
    1 / (1 - momentum) or gain times as large (less with a mask where entries are sent often), and what the optimizer
    adds to them is not: its weight_decay must be as many times larger for the same effect, as it is in `repro run`.

    The residuals are in `optimizer.state_dict()`, so each rank saves its own, and loads it after this call: the
    optimizer's state, and the model's where ranks hold different weights. Every rank takes every step: where a
    GradScaler skips one for itself, the others wait for it (in DistributedDataParallel, `State` can skip on all).

    Raises ConfigError, here or at the step, for what would train something else than was meant: ranks that call this
    for other options, seeds, densities or layers (no algorithm lets them differ), an optimizer with momentum where the
    algorithm has its own or `correction` is one, a second wrap of the same optimizer, a state loaded before this call,
    a model trained through DistributedDataParallel (which averages too) or of which a rank holds a part (FSDP,
    DTensor), and a parameter that is frozen or unfrozen later. Parameters that get no gradient on any rank in the first
    step are left out, as PyTorch leaves them out, and may get none later, unless they are given zeros in that step; one
    without a gradient in a later step counts as zeros. The first step is the first in which any parameter has a
    gradient; a run that is resumed goes on with what was in use.
    """
    if not isinstance(model, nn.Module):
        raise ConfigError("distributed.wrap takes the model first, then the optimizer")
    user_loop.check_optimizer(optimizer)
    if KEY in optimizer.state:
        raise ConfigError(
            "the optimizer's state was loaded before distributed.wrap, and its residuals would be lost: call wrap "
            "first, then load the state of the model and of the optimizer"
        )
    if KEY in optimizer.state_dict()["state"]:
        raise ConfigError("the optimizer is wrapped already: call distributed.wrap once for each optimizer")
    algo = compose.algorithm(name, options, seed, density)
    if algorithms.of(algo).wraps:
        raise ConfigError(f"algo={name}: DistributedDataParallel wraps the model itself; choose algo=dense, for one")
    if any(isinstance(module, DistributedDataParallel) for module in model.modules()):
        raise ConfigError(AVERAGED)
    if shards := {type(one).__name__ for one in (*model.modules(), *model.parameters())} & SHARDED:
        raise ConfigError(
            f"the model has a {min(shards)}: each rank holds a part of it, and distributed.wrap takes whole ones, as "
            "all ranks average the same parameters"
        )
    user_loop.check_momentum(algo, optimizer)
    layers = trainable(model, optimizer)
    collective = connect(group, layers[0].device)
    user_loop.check_alike("distributed.wrap", user_loop.asked(algo, density) | described(model, layers), collective)
    start = Collective(collective.transport)  # counts apart from the steps
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        tensor.data.copy_(start.broadcast(tensor.data))
    node = Node(algo, density, layers, collective)
    for before in (refuse_ddp, Forward(node).began):
        handle = model.register_forward_pre_hook(before)
        weakref.finalize(node, handle.remove).atexit = False  # a later optimizer of this model has a Node of its own
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
        self.used: list[bool] = []  # of each layer: whether any rank had a gradient for it in the first step
        self.depth = 0  # calls of step() inside each other: a class's own may call that of its base, which hooks too
        m, device = sum(layer.numel() for layer in layers), layers[0].device
        self.algorithm = user_loop.make(algo, density, layers, device)
        self.gradient = torch.zeros(m, dtype=layers[0].dtype, device=device)
        self.gradients = split(self.gradient, layers)
        if self.algorithm.mixes:
            self.weight = torch.empty_like(self.gradient)
            self.weights = split(self.weight, layers)
            self.flatten_weights()
            self.algorithm.begin(self.weight)
        else:
            user_loop.begin(self.algorithm, layers)

    @property
    def traffic(self) -> Traffic:
        """Returns what this rank sent and received in the last step: bytes_sent, messages, rounds."""
        return self.collective.traffic

    @torch.no_grad()
    def before_step(self, optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Puts the ranks' update in the gradient's place. A parameter without gradient counts as zeros, unless no rank
        had one in the first step: then it is left out."""
        self.depth += 1
        if self.depth > 1:
            return
        try:
            self.aggregate(optimizer, arguments, named)
        except BaseException:
            self.depth = 0
            raise

    def aggregate(self, optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if any(one is not None for one in (*arguments[1:], *named.values())):
            raise ConfigError("optimizer.step(closure): the gradient must be there before; call backward, then step()")
        if getattr(optimizer, "found_inf", None) is not None:  # as a GradScaler hands it to an optimizer that is fused
            raise ConfigError("a fused optimizer unscales gradients after they were summed: make it with fused=False")
        if any(id(x) not in self.known and x.grad is not None for x in parameters(optimizer)):
            raise ConfigError(
                "the optimizer has got further parameters to train since distributed.wrap: make a new one of all that "
                "are trained, and wrap that; residuals begin anew"
            )
        if not all(layer.requires_grad for layer in self.layers):
            raise ConfigError(
                "a parameter was frozen since distributed.wrap, and the update would still move it: freeze it first, "
                "then make an optimizer of the others and wrap that"
            )
        user_loop.check_momentum(self.algo, optimizer)
        user_loop.check_density(self.algo, self.algorithm.density)
        used = self.used or self.with_gradients()
        if any(used):  # else no rank has called backward yet
            self.used = used
        self.collective.traffic = Traffic()
        for layer, view, in_use in zip(self.layers, self.gradients, used, strict=True):
            if layer.grad is None:  # zero_grad() leaves none unless it is told otherwise
                view.zero_()
            elif layer.grad is not view:
                user_loop.check_not_sparse(layer.grad, layer.shape)
                if not in_use:
                    raise ConfigError(
                        f"a parameter of shape {tuple(layer.shape)} got its first gradient after the first step since "
                        "distributed.wrap, which leaves out unused ones: let every parameter have one in the first "
                        "step, if need be of zeros. Type `p.grad = torch.zeros_like(p)` before that step, for a "
                        "parameter p"
                    )
                view.copy_(layer.grad)
            layer.grad = view if in_use else None
        user_loop.check_finite(
            self.gradient, "A GradScaler's skipped steps work in DistributedDataParallel, with State alone"
        )
        update = self.algorithm.step(self.gradient, self.collective)
        if update.data_ptr() != self.gradient.data_ptr():
            self.gradient.copy_(update)

    def with_gradients(self) -> list[bool]:
        """Returns of each layer whether any rank has a gradient for it. Collective; not in the traffic of steps."""
        flags = torch.tensor([float(layer.grad is not None) for layer in self.layers], device=self.gradient.device)
        return Collective(self.collective.transport).all_reduce(flags).gt(0).tolist()

    @torch.no_grad()
    def after_step(self, optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.depth -= 1
        if self.algorithm.mixes and self.depth == 0:
            self.flatten_weights()
            self.algorithm.mix(self.weight, self.collective)

    def flatten_weights(self) -> None:
        """Makes each parameter a view into one vector, which it stays until `model.to(...)` or the like moves it."""
        for layer, view in zip(self.layers, self.weights, strict=True):
            if layer.data_ptr() != view.data_ptr():
                view.copy_(layer.data)
                layer.data = view

    def save(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        # among the states of parameters, where an optimizer that is not wrapped keeps what it does not know
        kept = {"state": self.algorithm.state_dict(), "used": self.used}
        state["state"][KEY] = {**user_loop.place(self.algo, self.collective), **kept}

    def load(self, optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        saved = state["state"].get(KEY) or state.get(KEY)  # the latter in files from before
        if saved is None:
            raise ConfigError("this state of the optimizer is from before distributed.wrap; load it before that call")
        what, used = "the optimizer", list(saved.get("used", []))  # files from before have none
        user_loop.check_place(saved, user_loop.place(self.algo, self.collective), what, WITHOUT)
        # on the CPU, as its form alone is looked at, and a GPU may have no room for a second one
        fresh = user_loop.make(self.algo, None, self.layers, torch.device("cpu"))
        user_loop.check_form(saved["state"], fresh, what)
        if used and len(used) != len(self.layers):
            raise ConfigError(
                f"this state of the optimizer is of {len(used)} parameters, here are {len(self.layers)}: "
                "give it the model of the run that saved it"
            )
        self.algorithm.load_state_dict(saved["state"])
        self.used = used
        return {**state, "state": {name: kept for name, kept in state["state"].items() if name != KEY}}


class Forward:
    """Tells a Node of forward passes. The optimizer's hooks keep it, and the model does not.

    In a copy of the model, for an average of weights or a file, it has none: no optimizer sends for that.
    """

    def __init__(self, node: Node | None = None):
        self.node = None if node is None else weakref.ref(node)

    def __reduce__(self) -> tuple[Any, ...]:
        return Forward, ()

    def began(self, model: nn.Module, arguments: Any) -> None:
        if self.node is not None and (node := self.node()) is not None:
            node.depth = 0  # also after a step that failed inside


def refuse_ddp(model: nn.Module, arguments: Any) -> None:
    """Raises ConfigError before a forward pass of a wrapped model inside DDP, which would average too."""
    # PyTorch keeps one for the whole process, and threads that leave in another order leave one behind: ask whose it is
    active = DistributedDataParallel._get_active_ddp_module()
    if torch.is_grad_enabled() and active is not None and any(module is model for module in active.modules()):
        raise ConfigError(AVERAGED)


def trainable(model: nn.Module, optimizer: Optimizer) -> list[nn.Parameter]:
    """Returns what of `model` the optimizer trains, in the model's order: all of one dtype and on one device."""
    held = {id(x) for x in parameters(optimizer) if x.requires_grad}
    layers = [layer for layer in model.parameters() if id(layer) in held]
    if not layers or len(layers) < len(held):
        raise ConfigError("the optimizer must train parameters of the model, and no others; give both the same model")
    kinds = {(layer.dtype, layer.device) for layer in layers}
    if len(kinds) > 1:
        found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise ConfigError(f"the parameters are {found}: all must be of one dtype on one device")
    return layers


def described(model: nn.Module, layers: Sequence[Tensor]) -> dict[str, str]:
    """Returns what ranks must have alike of a model: the form of each tensor by its name, and whether it is trained."""
    trained = set(map(id, layers))
    tensors = itertools.chain(model.named_parameters(), model.named_buffers())
    return {
        f"parameter {name}": f"{list(x.shape)} of {x.dtype}, {'trained' if id(x) in trained else 'not trained'}"
        for name, x in tensors
    }


def parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def split(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Splits `flat` into views of the shapes of `like`, one after the other."""
    return [part.view(x.shape) for part, x in zip(flat.split([x.numel() for x in like]), like, strict=True)]
