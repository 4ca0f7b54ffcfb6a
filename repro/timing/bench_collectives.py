"""Measures collectives in the lab beside the model and the lower bound; rows gather in a .part until all are there."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from repro import algorithms, screen
from repro.cluster import lab, ranks
from repro.cluster.ranks import Rank
from repro.comm import replay
from repro.comm.collective import Collective
from repro.comm.common_start import from_common_start
from repro.comm.sockets import SocketTransport
from repro.comm.traffic import Round, Traffic, bytes_sent
from repro.config.schema import Config, ConfigError
from repro.density import entries
from repro.iteration_time import measured_source
from repro.json_text import json_text
from repro.tables import Row
from repro.timing import dry_run, node_profile, stand_ins, wire_replay
from repro.timing.bench_links import middle
from repro.train import ending
from repro.whole_files import replacing

CASE_S = 8.0  # seconds; a slow case is repeated less often, but at least three times
SECONDS = {"measured": "seconds", "spread": "spread", "modelled": "modelled", "bound": "bound", "step": "step_s"}
RATIOS = {"over model": "to_model", "over bound": "to_bound", "counted over wire": "counted_to_wire"}
SURPLUS = 16  # stand-in parameters per selected entry, where only k matters


class Log(NamedTuple):
    """Where rank 0 writes its rows, and how far all measurements together have come."""

    file: Path  # .jsonl
    began: float
    done: int
    total: int

    def add(self, row: Row, number: int) -> None:
        """Writes the row, the `number`-th of this launch, and says so on stderr."""
        with self.file.open("a") as lines:
            lines.write(json_text(row) + "\n")
        done = self.done + number
        left = (time.time() - self.began) / done * (self.total - done)
        print(
            f"{done} of {self.total}: {row['algo']}, {row['nodes']} nodes, {row['parameters'] / 1e6:g}M: "
            f"{screen.milliseconds(row['seconds'])}, {row['to_model']:.2f} times the model; "
            f"about {left / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
        )


def measure_collectives(configs: Iterable[Config], sizes: Sequence[int], repeats: int, file: Path) -> list[Row]:
    """Measures every algorithm of `configs` at every size; writes `file` (.jsonl) at the end. Raises ConfigError."""
    launches: dict[tuple[Any, ...], list[Config]] = {}
    configs = list(configs)
    dry_run.check_whole(configs)
    node_profile.check_nothing_stated(configs)
    node_profile.check_unstated(configs, "not needed")
    for config in configs:
        if config.cluster.name != "lab":
            raise ConfigError(f"cluster={config.cluster.name}: repro bench collectives needs cluster=lab.")
        if config.network.alpha_s == config.network.beta_s_per_byte == 0:
            raise ConfigError(
                f"network={config.network.name}: messages that take no time are no model to compare with; type "
                "network.alpha_s or network.beta_s_per_byte above 0"
            )
        alike = config.nodes, config.network.name, str(config.network), str(config.cluster)
        launches.setdefault(alike, []).append(config)
    for group in launches.values():
        if keys := ending.named_twice(group, [(called(config), config.density) for config in group]):
            raise ConfigError(
                f"{', '.join(keys)}: rows that differ in nothing else have one name in {file.name}; "
                f"type one value of {', '.join(keys)}, and another --out for the next"
            )
    file.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    began, total = time.time(), len(sizes) * sum(map(len, launches.values()))
    with replacing(file) as part:
        for group in launches.values():
            log = Log(part, began, len(rows), total)
            main = functools.partial(all_collectives, group, sizes, repeats, log)
            measured = ranks.launch(group[0], main, ranks.no_data)
            rows += measured
            print()
            screen.show(cells(measured), keys=3)
    return rows


def cells(rows: Sequence[Row]) -> list[Row]:
    """Returns the cells of the table; its first three say what a row is about."""
    return screen.filled([
        {
            "algo": row["algo"],
            "nodes": row["nodes"],
            "parameters": row["parameters"],
            "k": row["k"],
            **{f"{name} (ms)": screen.ms(row[key]) for name, key in SECONDS.items()},
            **{name: row[key] for name, key in RATIOS.items()},
            "repeats": row["repeats"],
            "D": row.get("dilation"),
        }
        for row in rows
    ])  # fmt: skip


def all_collectives(
    configs: list[Config], sizes: Sequence[int], repeats: int, log: Log, config: Config, rank: Rank, data: None
) -> list[Row]:
    """Runs on each rank; returns one row for each size and config."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    for parameters, one in itertools.product(sizes, configs):
        rows.append(one_collective(one, parameters, repeats, rank))
        if rank.number == 0:
            log.add(rows[-1], len(rows))
    return rows


def called(config: Config) -> str:
    hook = config.algo.options.get("hook", "none")
    return config.algo.name + ("" if hook == "none" else f"_{hook}")


def one_collective(config: Config, parameters: int, repeats: int, rank: Rank) -> Row:
    """Measures one step's messages on the wire, beside the model and the lower bound, and then the whole step.

    `seconds` is the communication without the merges between the messages, because all ranks share this machine's
    cores; for a period of steps it is the mean. `step_s` includes the algorithm's own work on those shared cores; where
    time is dilated, that work would not last D times as long, so only DDP has one, which cannot be taken apart.
    """
    k = entries(config.density, parameters)
    step: Callable[[], object] | None = None
    name, wire, period = called(config), config.network, algorithms.period(config.algo)
    transport, dilation, wraps = rank.collective.transport, rank.dilation, algorithms.of(config.algo).wraps
    if wraps:
        all_rounds, step = ddp(algorithms.load(config.algo, parameters), parameters, rank)
        transport = transport.group_transport() if isinstance(transport, SocketTransport) else transport
    else:
        all_rounds = dry_run.all_rounds(config.algo, rank.size, parameters, k)
        if config.algo.sparse and dilation == 1:
            step = sparse_step(config, parameters, k, rank)
    rounds = all_rounds[rank.number]
    play = wire_replay.play(rounds, transport)
    warm = from_common_start(play, rank, 1)[0]  # connections, windows, pages
    if warm < CASE_S / 3:
        warm = from_common_start(play, rank, 1)[0]
    repeats = max(3, min(repeats, int(CASE_S / warm)))
    idle = _sent(rank, lambda: None, repeats)[1]
    if isinstance(transport, SocketTransport):
        transport.counts()  # of the warm-up
    times, sent = _sent(rank, play, repeats)
    median, spread = middle([seconds / dilation for seconds in times])
    counted = repeats * bytes_sent(rounds)
    modelled = replay.seconds(all_rounds, wire.alpha_s, wire.beta_s_per_byte)
    bound = replay.seconds(all_rounds, 0.0, 8 / wire.bits_per_s)
    counts = rank.control.gather_objects((counted, sent - idle))
    total, on_wire = (sum(column) for column in zip(*counts, strict=True))
    whole = statistics.median(from_common_start(step, rank, repeats)) / dilation if step else None
    source = measured_source(dilation, config.cluster.held and not wraps)
    return {
        "algo": name, "nodes": rank.size, "parameters": parameters,
        "k": k if config.algo.sparse else None, "seconds": median / period, "spread": spread / period,
        "modelled": modelled / period, "bound": bound / period,
        "to_model": median / modelled, "to_bound": median / bound,
        "counted_to_wire": total / on_wire, "repeats": repeats,
        "step_s": whole,
        "network": wire.name, "alpha_s": wire.alpha_s, "beta_s_per_byte": wire.beta_s_per_byte,
        **({"source": source, "dilation": dilation, "late": late(rank)} if source != "measured" else {}),
    }  # fmt: skip


def late(rank: Rank) -> float:
    """Returns the share of held messages that came later than the lab makes up for, over all ranks. Collective."""
    wire = rank.collective.transport
    counts = rank.control.gather_objects(wire.counts() if isinstance(wire, SocketTransport) else (0, 0))
    held, behind = map(sum, zip(*counts, strict=True))
    return behind / max(1, held)


def _sent(rank: Rank, action: Callable[[], object], repeats: int) -> tuple[list[float], int]:
    """Returns the seconds of each repeat, and the bytes that left this rank's interface meanwhile."""
    rank.control.barrier()
    before = lab.bytes_sent()
    seconds = from_common_start(action, rank, repeats)
    return seconds, lab.bytes_sent() - before


def sparse_step(config: Config, parameters: int, k: int, rank: Rank) -> Callable[[], object]:
    """Returns a call that does one step of the algorithm on random values."""
    generator = torch.Generator().manual_seed(rank.number)
    algorithm = stand_ins.few_parameters(config.algo, parameters, k, SURPLUS)
    gradient = torch.randn(stand_ins.stand_in(parameters, k, SURPLUS), generator=generator)

    def step() -> None:
        if algorithm.messages_depend_on_values:
            algorithm.clear_residual()
        algorithm.step(gradient.clone(), rank.collective)

    return step


class Linear(nn.Module):
    """Multiplies a nearly square matrix so that its gradient is the input: DDP takes gradients only from backward."""

    def __init__(self, parameters: int):
        super().__init__()
        rows = math.isqrt(parameters)
        self.weight = nn.Parameter(torch.zeros(rows, parameters // rows))

    def forward(self, gradient: Tensor) -> Tensor:
        return (self.weight * gradient).sum()


def ddp(algorithm: Any, parameters: int, rank: Rank) -> tuple[list[list[Round]], Callable[[], object]]:
    """Returns what DDP and its hook send for one matrix on every rank, and a call that does its backward pass."""
    model, collective = Linear(parameters), Collective(rank.collective.transport)
    wrapped = algorithm.wrap(model, collective)
    gradient = torch.randn(model.weight.shape, generator=torch.Generator().manual_seed(rank.number))

    def step() -> None:
        wrapped(gradient).backward()

    for _ in range(3):  # PowerSGD's hook compresses from the third step on
        step()
        collective.traffic = Traffic()
        algorithm.step(gradient, collective)  # counts
    return rank.control.gather_objects([done for done in collective.traffic.rounds if done.sent]), step
