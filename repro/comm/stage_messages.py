"""Lets torch.distributed.pipelining send its activations and gradients through our Collective, which counts them."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh

from repro.comm.collective import Collective
from repro.comm.subset import among

BACKEND = "stages"
COPY, STAGE = "copy", "stage"  # dimensions of the mesh
Move = tuple[bool, Tensor, int]  # whether it is sent, the tensor, and the peer


class Done(dist.Work):
    """Reports a message that has been sent and received."""

    def wait(self, *timeout: Any) -> bool:
        return True


class StageMessages(dist.ProcessGroup):
    """Is a process group, of all ranks or of a row or column of the mesh. Each call returns when its message is there.

    What torch exchanges to begin with is of whole numbers: `control` carries that. A batch of a send and a receive, as
    1F1B has them between neighbours, is one full-duplex round.
    """

    supports_coalescing = True
    group_name: Any = ""  # given by torch, which finds a group by it

    def __init__(self, collective: Collective, control: Collective):
        super().__init__(collective.rank, collective.size)
        self.collective, self.control = collective, control
        self.batch: list[Move] | None = None

    def getBackendName(self) -> str:  # noqa: N802  (torch's name)
        return BACKEND

    def _set_group_name(self, name: Any) -> None:
        self.group_name = name

    def _get_backend(self, device: torch.device) -> Any:
        return self

    def _start_coalescing(self, device: torch.device) -> None:
        self.batch = []

    def _end_coalescing(self, device: torch.device) -> Done:
        batch, self.batch = self.batch or [], None
        (_, x, to), (_, into, source) = sorted(batch, key=lambda move: not move[0])
        came = self.collective.shift(packed(x), to, source, packed(into))
        unpack(came, into)
        return Done()

    def send(self, tensors: list[Tensor], to: int, tag: int) -> Done:
        if self.batch is not None:
            self.batch.append((True, tensors[0], to))
        else:
            self._carrier(tensors[0]).send(packed(tensors[0]), to)
        return Done()

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> Done:
        if self.batch is not None:
            self.batch.append((False, tensors[0], source))
        else:
            unpack(self._carrier(tensors[0]).recv(packed(tensors[0]), source), tensors[0])
        return Done()

    def allreduce(self, tensors: list[Tensor], options: Any = None) -> Done:  # type: ignore[override]  # of its forms
        for x in tensors:
            self.control.all_reduce(x)
        return Done()

    def _carrier(self, x: Tensor) -> Collective:
        return self.collective if x.is_floating_point() else self.control


def packed(x: Tensor) -> Tensor:
    """Returns `x` contiguous; images [B, C, H, W] with the channels last, as convolutions are faster so on a CPU."""
    x = x.detach()
    return x.permute(0, 2, 3, 1).contiguous() if x.dim() == 4 else x.contiguous()


def unpack(x: Tensor, into: Tensor) -> None:
    """Copies what `packed` made into a tensor of the first shape."""
    into.detach().copy_(x.permute(0, 3, 1, 2) if x.dim() == 4 else x)


def grid(collective: Collective, control: Collective, stages: int) -> tuple[StageMessages, StageMessages]:
    """Lays all ranks out as a DeviceMesh of copies x stages. Returns the groups of this rank's row and of its column.

    A row is a pipeline; a column, the ranks that hold the same stage. Ranks S i to S i + S - 1 are row i: neighbours,
    as activations are large and stay inside a machine that has several ranks. The groups become those of the process,
    in place of what was made before.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(
        BACKEND, store=dist.HashStore(), rank=collective.rank, world_size=collective.size,
        pg_options=(collective, control),
    )  # fmt: skip
    mesh = init_device_mesh(
        "cpu", (collective.size // stages, stages), mesh_dim_names=(COPY, STAGE),
        backend_override={COPY: BACKEND, STAGE: BACKEND},  # else a dimension of all ranks has the default group itself
    )  # fmt: skip
    return cast(StageMessages, mesh.get_group(STAGE)), cast(StageMessages, mesh.get_group(COPY))


def _made(about: Any, both: tuple[Collective, Collective] | None) -> StageMessages:
    if both is not None:
        return StageMessages(*both)
    whole: Any = dist.group.WORLD
    ranks = about.global_ranks_in_group
    return StageMessages(among(whole.collective, ranks), among(whole.control, ranks))


dist.Backend.register_backend(BACKEND, _made, extended_api=True, devices=["cpu", "cuda"])
