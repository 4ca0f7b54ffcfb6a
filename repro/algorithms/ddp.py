"""PyTorch's DistributedDataParallel itself (Li et al., VLDB 2020), the baseline that everyone has."""

import threading
import warnings
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from repro.buckets import spans
from repro.collective import Collective
from repro.costs import Cost, all_reduce
from repro.network import ring
from repro.schema import ConfigError
from repro.transport import GroupTransport

# "forward_sync_buffers", its successor, would copy BatchNorm's statistics once.
warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated")

ONE_BUCKET_MB = 1 << 20  # more than any model has


def cost(size: int, parameters: int, k: int, bucket_mb: float = 25.0, hook: str = "none", rank: int = 1) -> Cost:
    """8 (P-1)/P m bytes, half of that with hook=fp16, in 2 (P-1) rounds for each bucket; here of one bucket."""
    return all_reduce(size, parameters, 2 if hook == "fp16" else 4)


class Algorithm:
    """DDP sums inside backward, beside it, and its messages do not pass our Collective.

    They are counted by formula: a ring all-reduce of each bucket, of half the bytes with `hook=fp16`; with
    `hook=powersgd` of the factors (`factors`). Without a model to wrap, this is one all-reduce.
    """

    density = 1.0

    def __init__(
        self,
        parameters: int,
        device: torch.device | str = "cpu",
        bucket_mb: float = 25.0,
        hook: str = "none",
        rank: int = 1,
    ):
        # PowerSGD's hook goes on in callbacks, whose order among buckets may differ from rank to rank: one bucket.
        self.bucket_mb = ONE_BUCKET_MB if hook == "powersgd" else bucket_mb
        self.hook, self.rank = hook, rank
        self.messages: list[int] | None = None  # elements of each all-reduce, once a model is wrapped
        self.itemsize = 2 if hook == "fp16" else 4

    def wrap(self, model: nn.Module, collective: Collective) -> DistributedDataParallel:
        """`model`, whose backward then leaves the mean gradient of all ranks."""
        group = process_group(collective)
        shapes = [layer.shape for layer in model.parameters()]
        wrapped = DistributedDataParallel(
            model, process_group=group, broadcast_buffers=False, bucket_cap_mb=self.bucket_mb
        )
        self.messages = [bucket.stop - bucket.start for bucket in spans(shapes, self.bucket_mb)]
        if self.hook == "fp16":
            wrapped.register_comm_hook(group, default_hooks.fp16_compress_hook)
        elif self.hook == "powersgd":
            if threading.current_thread() is not threading.main_thread() and collective.size > 1:
                # It seeds the process's one generator, and waits for the other ranks within its callbacks.
                raise ConfigError("algo.hook=powersgd cannot have ranks as threads; type cluster=processes")
            state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=self.rank, start_powerSGD_iter=2)
            wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            self.messages = factors(shapes, self.rank)
        return wrapped

    def step(self, gradient: Tensor, collective: Collective) -> Tensor:
        if self.messages is None:
            wire = gradient.half() if self.hook == "fp16" else gradient
            return gradient.copy_(collective.all_reduce(wire)).div_(collective.size)
        if collective.size > 1:
            for elements in self.messages:
                collective.traffic.add(ring(collective.rank, collective.size, elements, self.itemsize))
        return gradient

    def state_dict(self) -> dict[str, Any]:
        """Nothing: PowerSGD's memory lives in PyTorch's hook, and a run that goes on begins with an empty one."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def factors(shapes: list[torch.Size], rank: int) -> list[int]:
    """Elements that PowerSGD's hook sums (Vogels et al., NeurIPS 2019): what it leaves whole, all P, all Q.

    Of a layer [n, ...] with n x c entries: rank (n + c) where that is less than half, as the hook has it.
    """
    whole, left, right = 0, 0, 0
    for shape in shapes:
        n = shape[0] if len(shape) else 1
        c = shape.numel() // n
        r = min(n, c, rank)
        if len(shape) > 1 and 2 * r * (n + c) < n * c:
            left, right = left + n * r, right + c * r
        else:
            whole += n * c
    return [whole, left, right]


def process_group(collective: Collective) -> dist.ProcessGroup:
    """The ranks' group as DDP takes it: ours are bare backends, one for each rank, which may be a thread."""
    transport = collective.transport
    if not isinstance(transport, GroupTransport):
        raise ValueError("DistributedDataParallel needs a torch.distributed process group")
    if isinstance(transport.group, dist.ProcessGroup):
        return transport.group
    kind = dist.ProcessGroup.BackendType.NCCL if transport.device.type == "cuda" else dist.ProcessGroup.BackendType.GLOO
    group = dist.ProcessGroup(dist.HashStore(), collective.rank, collective.size)
    group._set_default_backend(kind)
    group._register_backend(transport.device, kind, cast(Any, transport.group))
    return group
