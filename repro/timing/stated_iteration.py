"""Measures iterations in the lab whose compute is stated: ranks sleep, and then the step's own messages travel.

`node=paper` sleeps the published compute and compress, `node=paper_compute` the published compute and what selecting
and merging take on one core here, `node=stated` the same beside `compute_s`, `node=measured` what both take here. Where
time is dilated, ranks sleep D times as long. Nothing is trained, so a rank needs memory for its largest message alone.
The messages have their real sizes and rounds; merges are a part of compress, which is slept. DDP's buckets are summed
by gloo, as DDP does it, but without its copies of the model.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import pickle
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from repro import algorithms
from repro.algorithms import ddp
from repro.cluster import dilation
from repro.comm import bucket_spans, replay
from repro.comm.common_start import PLAYED, from_common_start
from repro.config.compose import named_network
from repro.config.schema import Config, ConfigError
from repro.iteration_time import IterationTime, measured_source
from repro.runs.run_folder import time_line
from repro.timing import authors_messages, compress_time, dry_run, node_profile, wire_replay
from repro.timing.authors_messages import Work
from repro.timing.bench_collectives import late
from repro.timing.one_rank import Calibration

if TYPE_CHECKING:
    from repro.cluster.ranks import Rank
    from repro.comm.bucket_spans import Shapes
    from repro.comm.traffic import Round

REPEATS = 3, 9  # of iterations that take longer than WARM_S, and of others
WARM_S = 2.0  # of the lab: what takes longer is not played once more to warm up
RANK_S = 0.25  # ours: a rank's start
IDLE_S = 0.25  # of the lab: ranks sleep so long at most before the first message, as nothing travels meanwhile

Parts = list[list[list["Round"]]]  # for each bucket one list of rounds per rank


def lines(config: Config, rank: Rank) -> list[dict[str, Any]]:
    """Returns modelled `iteration_time` lines and a measured one on rank 0, and [] on other ranks. Collective."""
    made = from_rank_0(rank, lambda: stated(config))
    if isinstance(made, ConfigError):
        raise made
    calibration, parts, ready, shares, work = made
    wraps, inside = algorithms.of(config.algo).wraps, work.inside(rank.size)
    overlaps = algorithms.overlaps(config)
    modelled, wholes = [], []
    for wire in (config.network, *map(named_network, config.also_on)):
        each = [replay.seconds(part, wire.alpha_s, wire.beta_s_per_byte) for part in parts]
        hidden = bucket_spans.hidden_s(ready, shares, each) if overlaps else None
        wholes.append(sum(each) + inside)
        time = calibration.iteration(wholes[-1] / calibration.period, hidden)
        modelled.append(time_line(dataclasses.replace(config, network=wire), "modelled", time) | {"node": config.node})
    own = [part[rank.number] for part in parts]
    if wraps:
        plays = [wire_replay.play(one, ddp.group_transport(rank.collective)) for one in own]
    else:
        plays = [authors_messages.play(one, rank, work) for one in own]
    measured = measure(rank, calibration, plays, ready if overlaps else [], shares, wholes[0], config.steps)
    middle = sorted(measured, key=lambda one: one.total)[len(measured) // 2]  # of an even number the slower
    share = late(rank)
    about = {
        "node": config.node,
        "late": share,
        "repeats": len(measured),
        "iterations_s": [one.total for one in measured],
    }
    source = measured_source(rank.dilation, config.cluster.held and not wraps)
    found = [*modelled, time_line(config, source, middle, rank.dilation) | about]
    return found if rank.number == 0 else []


def expected_s(config: Config, shapes: Shapes) -> float:
    """Returns about how many seconds it takes to start the ranks and to measure: what the messages should, D times.

    Buckets that overlap are slept for too, from the first to the last: the node's compute at most.
    """
    cost = algorithms.step_path(config, shapes)
    wire, slow = config.network, dilation.expected(config, shapes)
    messages_s = slow * (cost.rounds * wire.alpha_s + cost.bytes * wire.beta_s_per_byte)
    quick = messages_s < WARM_S
    repeats = (config.steps or REPEATS[quick]) + quick
    overlaps = algorithms.overlaps(config)
    slept_s = 0.0
    if overlaps and (node := named(config)) != "measured":
        slept_s = slow * node_profile.profile(node, config, sum(map(math.prod, shapes)), shapes).compute_s
    return RANK_S * config.nodes + repeats * (IDLE_S + messages_s + slept_s)


def from_rank_0(rank: Rank, make: Callable[[], Any]) -> Any:
    """Returns on all ranks what rank 0 makes, through the store: the lab's links stay as they are."""
    if rank.number == 0:
        try:
            made = make()
        except ConfigError as error:
            made = error
        rank.store.set("stated", pickle.dumps(made).hex())
    rank.control.barrier()
    return pickle.loads(bytes.fromhex(rank.store.get("stated").decode()))  # noqa: S301  (our rank 0's)


def stated(config: Config) -> tuple[Calibration, Parts, list[float], list[float], Work]:
    """Returns seconds and rounds of an iteration, with overlap when each bucket is ready and its compress, and Work."""
    shapes = node_profile.layers(config)
    spans = algorithms.spans(config, shapes)
    parameters = spans[-1].stop
    compute_s, compress_s = seconds(config, parameters, shapes)
    parts = [authors_messages.changed(config, part) for part in dry_run.in_parts(config, config.nodes, shapes, spans)]
    moments: list[float] = []
    if algorithms.overlaps(config):
        moments = node_profile.backward(named(config), config)
        moments = [moment * compute_s / max(moments) for moment in moments]
    ready = bucket_spans.when_full(spans, shapes, moments) if moments else []
    period, delay = algorithms.period(config.algo), algorithms.delay(config.algo)
    calibration = Calibration(compute_s, compress_s, [], period, delay, [], moments)
    work = authors_messages.work(config, parameters)
    return calibration, parts, ready, bucket_spans.split_seconds(spans, compress_s), work


def named(config: Config) -> str:
    """Returns the profile of a node that `config.node` stands for, as `node_profile.profile` knows it."""
    return {"measured": "measured", "stated": f"{config.compute_s}"}.get(config.node or "", "paper")


def seconds(config: Config, parameters: int, shapes: Shapes) -> tuple[float, float]:
    """Returns compute and compress of one node. Raises ConfigError where they are not known."""
    node = node_profile.profile(named(config), config, parameters, shapes)
    node_profile.check_samples(node, config)
    if named(config) == "paper":
        node_profile.check_published(config, "node=measured, or node=stated and seconds as in compute_s=0.14")
    compress_s = node.compress_s
    if config.node == "paper_compute" or (config.node == "stated" and compress_s is None):
        compress_s = compress_time.compress(config, parameters, shapes)
    if compress_s is None:
        raise ConfigError(
            f"node={config.node}: no seconds of compress are published for algo={config.algo.name} of "
            f"model={config.model.name}; "
            "type node=paper_compute, which times them here"
        )
    return node.compute_s, compress_s


def measure(
    rank: Rank,
    calibration: Calibration,
    plays: Sequence[Callable[[], None]],
    ready: Sequence[float],
    shares: Sequence[float],
    modelled: float,
    repeats: int | None,
) -> list[IterationTime]:
    """Returns the seconds of several iterations, as the network that the lab stands for would have them.

    They are `repeats`, or as many as REPEATS says.
    """
    dilation = rank.dilation
    if ready:
        starts = [dilation * (moment + sum(shares[: i + 1])) for i, moment in enumerate(ready)]
    else:
        starts = [dilation * (calibration.compute_s + calibration.compress_s)] * len(plays)
    early = max(0.0, starts[0] - IDLE_S)
    starts = [start - early for start in starts]
    quick = modelled * dilation < WARM_S
    for play in plays if quick else []:
        with rank.waits(PLAYED):
            play()
    late(rank)  # of the warm-up
    found = []
    for _ in range(repeats or REPEATS[quick]):
        busy: list[float] = []
        (whole,) = from_common_start(functools.partial(play_at, rank, starts, plays, busy), rank, 1)
        exposed_s = (whole - starts[-1]) / dilation / calibration.period  # what the iteration waits for
        if not ready:
            found.append(calibration.iteration(exposed_s))
            continue
        sent_s = statistics.fmean(map(sum, rank.control.gather_objects(busy))) / dilation / calibration.period
        found.append(calibration.overlapped(sent_s, exposed_s))
    return found


def play_at(rank: Rank, starts: Sequence[float], plays: Sequence[Callable[[], None]], busy: list[float]) -> None:
    """Plays each bucket's messages `starts` seconds from now, or when those before it are done; notes their seconds."""
    began = rank.now()
    for start, play in zip(starts, plays, strict=True):
        rank.sleep_until(began + start)
        first = rank.now()
        play()
        busy.append(rank.now() - first)
