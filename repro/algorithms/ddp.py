"""PyTorch's DistributedDataParallel itself (Li et al., VLDB 2020), the baseline that everyone has."""

import math
import warnings
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from repro import algorithms
from repro.algorithms import powersgd
from repro.comm.bucket_spans import Shapes, spans
from repro.comm.collective import Collective
from repro.comm.cost_formulas import Cost, all_reduce, in_turn
from repro.comm.primitives import mean
from repro.comm.sockets import SocketTransport
from repro.comm.traffic import ring
from repro.comm.transport import GroupTransport

# "forward_sync_buffers", its successor, would copy BatchNorm's statistics once.
warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated")

ONE_BUCKET_MB = 1 << 20  # more than any model has
WHOLE = 2  # steps before PowerSGD's hook compresses
KEPT = {"error": "error_dict", "left": "p_memory_dict", "right": "q_memory_dict"}  # of the hook, by bucket


class Algorithm(algorithms.Algorithm):
    """Sums while backward runs, with messages that do not pass our Collective.

    They are counted by formula: a ring all-reduce of each bucket, with `hook=fp16` of half the bytes, with
    `hook=powersgd` of the factors (`factors`), and of the whole gradient in the first two steps, the least that
    the hook takes: by PyTorch's default they are 1,000.
    Without a model to wrap, this is one all-reduce; with `hook=powersgd`, our own PowerSGD that sends as the hook does.

    DDP begins with one bucket and forms the others in the order of its first backward. As a sum of three nodes or more
    depends on where its buckets lie, a resumed run does a backward that does not count before it goes on.
    """

    compresses = False
    wraps = takes_shapes = settles = True

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        bucket_mb: float = 25.0,
        hook: str = "none",
        rank: int = 1,
        shapes: Shapes | None = None,
    ):
        self.bucket_mb = self.own_bucket_mb(bucket_mb, hook)
        self.hook, self.rank, self.steps = hook, rank, 0
        self.inner = LikeHook(parameters, device, rank, shapes=shapes) if hook == "powersgd" else None
        self.residual = None if self.inner is None else self.inner.residual
        self.messages: list[int] | None = None  # elements of each all-reduce, once a model is wrapped
        self.itemsize = 2 if hook == "fp16" else 4
        self.state: powerSGD_hook.PowerSGDState | None = None  # of the hook

    def wrap(self, model: nn.Module, collective: Collective) -> DistributedDataParallel:
        """Wraps `model` in DDP, whose backward leaves the mean gradient of all ranks."""
        group = process_group(collective)
        shapes = [layer.shape for layer in model.parameters()]
        wrapped = DistributedDataParallel(
            model, process_group=group, broadcast_buffers=False, bucket_cap_mb=self.bucket_mb
        )
        self.messages = [bucket.stop - bucket.start for bucket in spans(shapes, self.bucket_mb)]
        if self.hook == "fp16":
            wrapped.register_comm_hook(group, default_hooks.fp16_compress_hook)
        elif self.hook == "powersgd":
            self.state = powerSGD_hook.PowerSGDState(
                group, matrix_approximation_rank=self.rank, start_powerSGD_iter=WHOLE
            )
            wrapped.register_comm_hook(self.state, powerSGD_hook.powerSGD_hook)
            self.messages, self.inner, self.residual = factors(shapes, self.rank), None, None
        return wrapped

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        if self.inner is not None:
            return self.inner.step(gradient, collective)
        if self.messages is None:
            if self.hook == "fp16":
                return gradient.copy_(mean(gradient.half(), collective))
            return mean(gradient, collective)
        self.steps += 1
        if collective.size > 1:
            whole = self.steps <= (WHOLE if self.state is not None else 1)
            for elements in [gradient.numel()] if whole else self.messages:
                collective.traffic.add(ring(collective.rank, collective.size, elements, self.itemsize))
        return gradient

    def state_dict(self) -> dict[str, Any]:
        if self.state is None:
            return {} if self.inner is None else self.inner.state_dict()
        kept = {name: getattr(self.state, slot).get(0, torch.zeros(0)) for name, slot in KEPT.items()}
        return {**kept, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.state is not None:
            self.steps = self.state.iter = state["steps"]
            for name, slot in KEPT.items():
                if state[name].numel():
                    setattr(self.state, slot, {0: state[name].clone()})
        elif self.inner is not None:
            self.inner.load_state_dict(state)
        else:
            self.steps = 1  # that with one bucket was before

    @staticmethod
    def cost(
        size: int,
        parameters: int,
        k: int,
        bucket_mb: float = 25.0,
        hook: str = "none",
        rank: int = 1,
        shapes: Shapes | None = None,
    ) -> Cost:
        if hook == "powersgd" and shapes is not None:
            return in_turn(*(all_reduce(size, elements) for elements in factors(shapes, rank)))
        if hook == "powersgd":
            return powersgd.Algorithm.cost(size, parameters, k, rank, shapes=shapes)
        return all_reduce(size, parameters, 2 if hook == "fp16" else 4)

    @staticmethod
    def own_bucket_mb(bucket_mb: float = 25.0, hook: str = "none", **others: Any) -> float:
        # PowerSGD's hook continues in callbacks, whose order among buckets may differ between ranks: hence one bucket.
        return ONE_BUCKET_MB if hook == "powersgd" else bucket_mb


class LikeHook(powersgd.Algorithm):
    """Sums what PowerSGD's hook sums, in its order and as apart as there: `factors` counts the elements."""

    smaller = 2

    def means(self, products: list[Tensor], vectors: Tensor, collective: Collective) -> list[Tensor]:
        plain = powersgd.mean([vectors], collective) if vectors.numel() else [vectors]
        return [*powersgd.mean(products, collective), *plain]


def factors(shapes: Shapes, rank: int) -> list[int]:
    """Counts the elements that PowerSGD's hook sums (Vogels et al., NeurIPS 2019): uncompressed, all P, all Q.

    Empty sums are left out, as gloo sends nothing for them.
    A layer [n, ...] with n x c entries takes rank (n + c) elements if that is less than half, as in the hook.
    """
    whole, left, right = 0, 0, 0
    for shape in shapes:
        n = shape[0] if len(shape) else 1
        c = math.prod(shape[1:])
        r = min(n, c, rank)
        if len(shape) > 1 and 2 * r * (n + c) < n * c:
            left, right = left + n * r, right + c * r
        else:
            whole += n * c
    return [elements for elements in (whole, left, right) if elements]


def process_group(collective: Collective) -> dist.ProcessGroup:
    """Returns the group in the form DDP takes: ours are bare backends, one per rank, and a rank may be a thread."""
    transport = group_transport(collective)
    if isinstance(transport.group, dist.ProcessGroup):
        return transport.group
    kind = dist.ProcessGroup.BackendType.NCCL if transport.device.type == "cuda" else dist.ProcessGroup.BackendType.GLOO
    group = dist.ProcessGroup(dist.HashStore(), collective.rank, collective.size)
    group._set_default_backend(kind)
    gloo = kind == dist.ProcessGroup.BackendType.GLOO  # carries what a GPU holds as well: ranks may share one
    for device in ("cpu", "cuda") if gloo else ("cuda",):
        group._register_backend(torch.device(device), kind, cast(Any, transport.group))
    return group


def group_transport(collective: Collective) -> GroupTransport:
    """Returns what DDP sends by; over our own sockets a group of its own, of the same ranks."""
    transport = collective.transport
    if isinstance(transport, SocketTransport):
        transport = transport.group_transport()
    if not isinstance(transport, GroupTransport):
        raise ValueError("DistributedDataParallel needs a torch.distributed process group")
    return transport
