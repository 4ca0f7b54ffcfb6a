"""Lists what may be trained with: algorithms with every wire format and bucket size that a relaxation allows."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

from repro import algorithms
from repro.config.schema import Config, ConfigError
from repro.timing import predict, stand_ins
from repro.timing.predict import RELAXES
from repro.train import combinations


def allowed(
    configs: Iterable[Config],
    relax: str,
    buckets_mb: Sequence[float | None],
    wires: Sequence[str] | None = None,
) -> list[Config]:
    """Returns those of `configs` that relax no more than `relax`, with every wire and bucket size that they allow.

    Without `wires` each keeps its own. With buckets a sparse algorithm selects from each. Algorithms whose messages
    depend on values get no buckets, because all their ranks would have to run for each bucket. Raises ConfigError.
    """
    if relax not in RELAXES:
        raise ConfigError(f"relax={relax}: choose one of {', '.join(RELAXES)}.")
    found, refused, unbucketed = list[Config](), list[Config](), list[str]()
    for config in itertools.chain.from_iterable(with_wires(config, wires) for config in configs):
        if not stand_ins.allows(config.algo, config.nodes):
            refused.append(config)
            continue
        if RELAXES.index(predict.relaxes(config.algo)) > RELAXES.index(relax):
            continue
        for size in buckets_mb:
            if size is None:
                (found if combinations.allows(_whole(config)) else refused).append(_whole(config))
                continue
            scope: Literal["global", "bucket"] = "bucket" if config.algo.sparse else "global"
            bucketed = dataclasses.replace(config, bucket_mb=size, overlap="on", scope=scope)
            if not combinations.allows(bucketed):
                refused.append(bucketed)
            elif algorithms.of(config.algo).messages_depend_on_values:
                unbucketed.append(config.algo.name)
            else:
                found.append(bucketed)
    if not found and refused:
        stand_ins.check_ranks(refused[0].algo, refused[0].nodes)
        combinations.check(refused[0])
    if not found and unbucketed:
        raise ConfigError(
            f"algo={unbucketed[0]}: its messages depend on values, and get no buckets; type bucket_mb=null"
        )
    if not found:
        raise ConfigError(f"relax={relax} leaves none of the algorithms asked for; type relax=all, or other algo=")
    return found


def left_out(configs: Iterable[Config]) -> list[str]:
    """Returns a line for each algorithm that is refused also without buckets, with the reason."""
    lines = {}
    for config in configs:
        why = "as it would not train"
        try:
            combinations.check(_whole(config))
            why = "as its messages cannot be predicted"
            stand_ins.check_ranks(config.algo, config.nodes)
        except ConfigError as error:
            lines[config.algo.name] = f"Left out: {config.algo.name}, {why}. {error}"
    return list(lines.values())


def _whole(config: Config) -> Config:
    return dataclasses.replace(config, bucket_mb=None, overlap="off", scope="global")


def with_wires(config: Config, wires: Sequence[str] | None) -> list[Config]:
    """Returns `config` with each of the wire formats, if it sends pairs. Raises ConfigError."""
    if wires is None:
        return [config]
    formats = [dataclasses.replace(config.algo, wire=wire) for wire in wires]  # type: ignore[arg-type]  # it checks
    if not algorithms.of(config.algo).sends_pairs:
        return [config]
    return [dataclasses.replace(config, algo=algo) for algo in formats]
