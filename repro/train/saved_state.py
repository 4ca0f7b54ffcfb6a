"""Turns what a rank must keep between two sessions into files of a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from repro.config.schema import RunError
from repro.models import _carried
from repro.rng import derive
from repro.runs import checkpoint
from repro.state_form import unlike
from repro.train import evaluation
from repro.train.replica import Replica
from repro.train.sent import Sent
from repro.train.step import Worker

GENERATORS = {16, 5056}  # bytes of a generator's state, of CUDA's and of a CPU's


def files(worker: Worker, window: Tensor, sent: Sent) -> dict[str, Any]:
    """Returns this rank's files by name: its own state, and the shared one if it is rank 0 and all hold the same."""
    state = {
        "algorithm": worker.algorithm.state_dict(), "generator": worker.generator.get_state(),
        "statistics": worker.replica.statistics(), "window": window, "sent": sent.state_dict(),
        "carried": _carried.states(worker.replica.model),
    }  # fmt: skip
    mine: dict[str, Any] = {_own(worker.rank.number): state}
    if worker.algorithm.mixes:
        state["replica"] = worker.replica.state_dict()
    elif worker.copy == 0:
        mine[shared(worker.config.stages, worker.stage)] = worker.replica.state_dict()
    return mine


def shared(stages: int, stage: int) -> str:
    """Returns the file of the parameters and momentum of a stage, where all ranks that have it hold the same."""
    return "shared.pt" if stages == 1 else f"shared-{stage:05d}.pt"


def load(worker: Worker, window: Tensor, sent: Sent, target: Path, step: int) -> str | None:
    """Puts the state of `step`, in the folder `target`, into the others. Returns why it cannot, None if it could.

    After a failure the worker may have parts of it: make another.
    """
    name = _own(worker.rank.number)
    try:
        state = checkpoint.load(target, name, worker.rank.device)
        algorithm, replica, statistics = state["algorithm"], state.get("replica"), worker.replica.statistics()
        if replica is None:
            file = shared(worker.config.stages, worker.stage)
            replica = checkpoint.load(target, file, worker.rank.device)
        here = {
            "algorithm": worker.algorithm.state_dict(), "replica": worker.replica.state_dict(),
            "statistics": statistics, "window": window,
        }  # fmt: skip
        saved = {"algorithm": algorithm, "replica": replica, **{k: state[k] for k in ("statistics", "window")}}
        if difference := unlike(saved, here):
            return f"{name}: {difference}"
        worker.replica.load_state_dict(replica)
        worker.algorithm.load_state_dict(algorithm)
        drawn, own = state["generator"].cpu(), worker.generator.get_state()
        if {drawn.numel(), own.numel()} != GENERATORS:
            worker.generator.set_state(drawn)
        else:  # of another device: the draws of the first steps do not come a second time
            worker.generator.manual_seed(derive(worker.config.seed, worker.rank.number, "dropout", step))
        for buffer, value in zip(statistics, state["statistics"], strict=True):
            buffer.copy_(value)
        _carried.put(worker.replica.model, state.get("carried", []))  # checkpoints of before have none
        window.copy_(state["window"])
        sent.load_state_dict(state.get("sent", Sent().state_dict()))  # checkpoints of before have none
    except torch.OutOfMemoryError:
        raise
    except RunError as error:
        return str(error)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else error}"
    return None


def load_as_evaluated(replica: Replica, target: Path, ranks: Sequence[int], file: str) -> None:
    """Puts into `replica` what the evaluation of this checkpoint saw: the mean of all in which the `ranks` differ.

    `file` has what they share. Reads one rank's file at a time. Raises RunError where the files are not those of such a
    network.
    """
    device = replica.parameters.device
    total: list[Tensor] = []
    try:
        for rank in ranks:
            state = checkpoint.load(target, _own(rank), device)
            mixes = "replica" in state
            if rank == ranks[0] or mixes:
                replica.load_state_dict(state["replica"] if mixes else checkpoint.load(target, file, device))
            for buffer, value in zip(replica.statistics(), state["statistics"], strict=True):
                buffer.copy_(value)
            differing = evaluation.differing(replica, mixes)
            total = [a + b for a, b in zip(total, differing, strict=True)] if total else [d.clone() for d in differing]
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{target} is not of this network: {type(error).__name__}") from None
    for tensor, summed in zip(differing, total, strict=True):
        tensor.copy_(summed.div_(len(ranks)))


def _own(rank: int) -> str:
    return f"rank-{rank:05d}.pt"
