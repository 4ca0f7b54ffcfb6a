"""Measures pipelines in the lab whose compute is stated: ranks sleep in place of each micro-batch's work.

How the stated compute divides among the blocks of the network is timed here. The messages, of activations and of
gradients, are real and in the order of 1F1B.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from repro.comm.collective import Transport
from repro.comm.common_start import from_common_start
from repro.comm.subset import Subset
from repro.comm.traffic import Link, Round
from repro.config.compose import named_network
from repro.config.schema import Config, ConfigError
from repro.iteration_time import IterationTime, measured_source
from repro.runs.run_folder import time_line
from repro.timing import node_profile, pipelined, stated_iteration, wire_replay
from repro.timing.bench_collectives import late
from repro.timing.pipelined import Pipelined, Program
from repro.train import split
from repro.train.split import Block, Split

if TYPE_CHECKING:
    from repro.cluster.ranks import Rank

REPEATS = 3
FEW = 8  # images a batch where only the shares of the blocks are wanted


def lines(config: Config, rank: Rank) -> list[dict[str, Any]]:
    """Returns modelled `iteration_time` lines and a measured one on rank 0, and [] on other ranks. Collective."""
    made = stated_iteration.from_rank_0(rank, lambda: stated(config))
    if isinstance(made, ConfigError):
        raise made
    one, cuts = made
    wires = config.network, *map(named_network, config.also_on)
    modelled = [one.parts(Link(wire.alpha_s, wire.beta_s_per_byte)) for wire in wires]
    copy, stage = divmod(rank.number, config.stages)
    first, whole = copy * config.stages, rank.collective.transport
    pipe = Subset(whole, range(first, first + config.stages))
    peers = Subset(whole, range(stage, rank.size, config.stages))
    aggregate = wire_replay.play(one.rounds[stage][copy], peers)

    def iteration() -> None:
        play(one.programs[stage], pipe, rank)
        rank.sleep_until(rank.now() + rank.dilation * one.compress_s[stage])
        aggregate()

    from_common_start(iteration, rank, 1)
    late(rank)  # of the warm-up
    seconds = [each / rank.dilation for each in from_common_start(iteration, rank, config.steps or REPEATS)]
    share = late(rank)
    middle = statistics.median_high(seconds)
    work = modelled[0].compute_s, modelled[0].compress_s
    measured = IterationTime(*work, middle - sum(work))
    about = {"node": config.node, "cuts": cuts, "bytes_most": one.bytes_most()}
    said = {"late": share, "repeats": len(seconds), "iterations_s": seconds}
    source = measured_source(rank.dilation, config.cluster.held)
    found = [
        time_line(dataclasses.replace(config, network=wire), "modelled", time) | about
        for wire, time in zip(wires, modelled, strict=True)
    ]
    found.append(time_line(config, source, measured, rank.dilation) | about | said)
    return found if rank.number == 0 else []


def stated(config: Config) -> tuple[Pipelined, list[int]]:
    """Returns an iteration with the node's stated seconds, and where the network is cut. Raises ConfigError."""
    shapes = node_profile.layers(config)
    compute_s, compress_s = stated_iteration.seconds(config, sum(map(math.prod, shapes)), shapes)
    blocks = scaled(shares(config), config, compute_s)
    cuts = config.cuts or split.balanced(blocks, config.stages)
    return pipelined.iteration(config, Split(blocks, cuts), compress_s), cuts


def shares(config: Config) -> list[Block]:
    """Times the blocks of the network here, on FEW images."""
    return split.measured(dataclasses.replace(config, batch_per_node=FEW), torch.device("cpu"))


def scaled(blocks: Sequence[Block], config: Config, compute_s: float) -> list[Block]:
    """Returns blocks, timed on FEW images, as they are if one node's images of a step take `compute_s` seconds."""
    factor = compute_s / config.accumulate / sum(block.forward_s + block.backward_s for block in blocks)
    batch = config.batch_per_node
    return [
        dataclasses.replace(
            block, forward_s=factor * block.forward_s, backward_s=factor * block.backward_s,
            shape=[batch, *block.shape[1:]], kept=block.kept * batch // FEW,
        )
        for block in blocks
    ]  # fmt: skip


def play(program: Program, wire: Transport, rank: Rank) -> None:
    """Does what a stage does in an iteration, asleep in place of its work."""
    most = max((step.sent + step.received for step in program if isinstance(step, Round)), default=0)
    out, into = torch.zeros(most, dtype=torch.uint8), torch.zeros(most, dtype=torch.uint8)
    for step in program:
        if isinstance(step, Round):
            wire_replay.move(step, wire, out, into)
        else:
            rank.sleep_until(rank.now() + rank.dilation * step)
