"""BAGUA's communication primitives (arXiv:2107.01499, section 3), pure functions over a `Collective`.

Centralized: every rank gets the sum over all, here with a codec (in full precision it is an all-reduce), or the
mean of some entries.
Decentralized: every rank averages with its peers of the step, in full precision and with a codec.
With P = 1 the rank gets its own x back, uncompressed.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from repro.comm.collective import Collective
from repro.compression.codecs import Codec
from repro.compression.error_feedback import narrowed
from repro.config.schema import ConfigError
from repro.rng import derive

Topology = Literal["all", "ring", "shift_one", "random_pairs"]


# Centralized: the owner of chunk r, rank r, sums that chunk for all.


def mean(x: Tensor, collective: Collective) -> Tensor:
    """Averages x over all ranks, in place (C_FP_S). Half precision is divided before the sum, which could overflow."""
    if x.dtype == torch.float16:
        return collective.all_reduce(x.div_(collective.size))
    return collective.all_reduce(x).div_(collective.size)


def compressed_scatter_reduce(
    x: Tensor,
    collective: Collective,
    codec: Codec,
    worker_error: Tensor | None = None,
    server_error: Tensor | None = None,
) -> Tensor:
    """Sums all ranks' `x` [m] as float32, compressed on the way to the owners and on the way back (C_LP_S).

    `worker_error` [m] and the owner's `server_error` [ceil(m/P)] are added before compression and overwritten with
    what compression lost: sum + all errors == all x + all old errors. Sends 2 (P-1) codec.nbytes(ceil(m/P))
    bytes in P - 1 + ceil(log2 P) rounds.
    """
    size, m = collective.size, x.numel()
    if size == 1:
        total = x.float().clone()
        for error in (worker_error, server_error):
            if error is not None:
                total += error
                error.zero_()
        return total
    mine = chunks(x.float() if worker_error is None else x.float() + worker_error, size)
    width = mine.shape[1]
    wires = codec.encode(mine)
    if worker_error is not None:
        mine -= codec.decode(wires, width)
        worker_error.copy_(mine.view(-1)[:m])
    total = codec.decode(all_to_all(wires, collective), width).sum(0)
    total[max(0, m - collective.rank * width) :] = 0  # the padding may decode to other values
    if server_error is not None:
        total += server_error
    wire = codec.encode(total[None])
    if server_error is not None:
        server_error.copy_(total - codec.decode(wire, width)[0])
        server_error[max(0, m - collective.rank * width) :] = 0
    return codec.decode(collective.all_gather(wire[0]), width).reshape(-1)[:m]


def average_at(index: Tensor, residual: Tensor, collective: Collective, out: Tensor, room: int | None = None) -> Tensor:
    """Moves the entries at `index` [n], the same on all ranks, out of the residuals [m], and writes their mean to out.

    What a bfloat16 rounds away in out [m], which is zero elsewhere, stays in each residual. Messages have `room` for so
    many values, by default n.
    """
    values = residual[index]
    if room is not None:
        values = F.pad(values, (0, room - values.numel()))
    average = mean(values, collective)[: index.numel()]
    update = narrowed(average, out.dtype)
    residual[index] = average - update.to(average.dtype)
    out.zero_()[index] = update
    return out


def chunks(x: Tensor, size: int) -> Tensor:
    """Reshapes x [m] to [size, ceil(m/size)], padded with zeros; rank r owns row r."""
    width = -(-x.numel() // size)
    return F.pad(x, (0, size * width - x.numel())).view(size, width)


def all_to_all(rows: Tensor, collective: Collective) -> Tensor:
    """Sends row r to rank r and puts what rank r sent into row r: [P, ...] -> [P, ...] in P - 1 rounds."""
    rank, size = collective.rank, collective.size
    received = torch.empty_like(rows)
    received[rank] = rows[rank]
    for distance in range(1, size):
        to, source = (rank + distance) % size, (rank - distance) % size
        received[source] = collective.shift(rows[to], to, source)
    return received


# Decentralized.

UNEVEN = (
    "algo.topology=shift_one pairs all ranks, so nodes={} must be even; for an odd number type algo.topology=ring, all "
    "or random_pairs"
)


def peers(topology: Topology, rank: int, size: int, step: int = 0, seed: int = 0) -> list[tuple[int, int]]:
    """Returns the rounds of `step`, each as (rank to send to, rank to receive from). Raises ConfigError.

    ring: both neighbours, one round each. shift_one: the lower half of the ranks pairs with the upper half, shifted
    by one each step; P must be even. random_pairs: pairs drawn from (seed, step), the same on all ranks; with odd P
    one rank has no peer in the step. Runs of another seed have the same pairs: nothing else is drawn from this one.
    """
    if topology not in get_args(Topology):
        raise ConfigError(f"topology={topology}: choose one of {', '.join(get_args(Topology))}.")
    if size == 1:
        return []
    if topology == "all":
        return [((rank + d) % size, (rank - d) % size) for d in range(1, size)]
    if topology == "ring":
        right, left = (rank + 1) % size, (rank - 1) % size
        return [(right, left), (left, right)] if size > 2 else [(right, left)]
    if topology == "shift_one":
        half = size // 2
        if size % 2:
            raise ConfigError(f"{UNEVEN.format(size)}.")
        partner = half + (rank + step) % half if rank < half else (rank - half - step) % half
        return [(partner, partner)]
    order = torch.randperm(size, generator=torch.Generator().manual_seed(derive(seed, "pairs", step))).tolist()
    place = order.index(rank) ^ 1
    return [(order[place], order[place])] if place < size else []


def exchange_with_peers(x: Tensor, collective: Collective, topology: Topology, step: int, seed: int) -> list[Tensor]:
    """Sends `x` to every peer of the step; returns theirs in the order of `peers`."""
    rounds = peers(topology, collective.rank, collective.size, step, seed)
    return [collective.shift(x, to, source) for to, source in rounds]


def mix_with_peers(x: Tensor, collective: Collective, topology: Topology, step: int, seed: int = 0) -> Tensor:
    """Returns the mean of `x` and of the peers' x in this step (D_FP_S).

    The mean over all ranks does not change; `all` gives it to every rank by a ring all-reduce. Sends |x| to each peer.
    """
    if topology == "all":
        return mean(x.clone(), collective)
    theirs = exchange_with_peers(x, collective, topology, step, seed)
    return torch.stack([x, *theirs]).mean(0)
