"""Chooses algorithm, density and buckets to train with: it predicts the iteration of every candidate, and ranks them.

An iteration is compute and compress as timed here (or stated), and its own messages on the network's alpha and beta.
BAGUA (arXiv:2107.01499) leaves the choice to its user, and names that as its limit.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from repro import screen
from repro.comm.bucket_spans import MB
from repro.config.schema import Config, ConfigError
from repro.iteration_time import TIE, IterationTime
from repro.report.group import Group
from repro.report.time_to_target import Reach
from repro.timing import node_profile, predict, to_target
from repro.timing.predict import RELAXES, Iteration
from repro.train import ending
from repro.waiting import track


@dataclass(frozen=True)
class Choice:
    """Holds one candidate, its iteration on the network, and when a committed run of it reached the target.

    `warm_s` has the seconds of an iteration at each density of that run's warm-up.
    """

    iteration: Iteration
    time: IterationTime
    reach: Reach | None = None
    warm_s: dict[float, float] = field(default_factory=dict)

    def _training_s(self, samples: Iterable[float]) -> list[float]:
        if self.reach is None:
            return []
        return to_target.seconds(self.reach.group, self.config, samples, self.seconds, self.warm_s)

    @property
    def times_to_target_s(self) -> list[float]:
        """Returns the seconds to the target by each seed's curve, ascending; none where they did not get there."""
        return self._training_s(self.reach.samples if self.reach else ())

    @property
    def spread_s(self) -> list[float]:
        """Returns the least and the most seconds to the target, over seeds or within one run."""
        return self._training_s(self.reach.spread if self.reach and self.reach.samples else ())

    @property
    def to_target_s(self) -> float | None:
        return statistics.fmean(self.times_to_target_s) if self.times_to_target_s else None

    @property
    def seconds(self) -> float:
        return self.time.total

    @property
    def config(self) -> Config:
        return self.iteration.config

    @property
    def keys(self) -> list[str]:
        """Returns the command-line settings that select it, besides the model, the nodes and the network."""
        config = self.config
        found = [f"algo={config.algo.name}"]
        found += [f"density={ending.cell(config.density)}"] if config.algo.sparse else []
        found += [f"algo.wire={config.algo.wire}"] if config.algo.wire != "pairs" else []
        if config.bucket_mb is not None:
            found += [f"bucket_mb={ending.cell(config.bucket_mb)}", "overlap=on"]
            found += ["scope=bucket"] if config.algo.sparse else []
        return found


def rank(configs: Sequence[Config], node: str, target: float | None, groups: Sequence[Group]) -> list[Choice]:
    """Ranks the candidates, best first: by time to `target` where `groups` of one schedule know it, then by iteration.

    Among those within TIE of the fastest, the one that relaxes least comes first, without buckets before with them, and
    plain pairs before codes: a prediction is no more precise. `node` is paper, measured or seconds, as
    `node_profile.profile` reads it; without seconds of compress, each algorithm's is timed here. Candidates with only
    one bucket are left out, because they equal those without. Raises ConfigError.
    """
    node_profile.check_unstated(configs, "node=")
    shapes, wire = node_profile.layers(configs[0]), configs[0].network
    moments = node_profile.backward(node, configs[0])
    parameters = sum(map(math.prod, shapes))
    compress: dict[tuple[str, str, float], float] = {}
    curves = [] if target is None else to_target.comparable(target, configs, groups)
    found = []
    for config in track(configs, f"predicting {screen.plural(len(configs), 'candidate')}", len(configs)):
        key = (config.algo.name, config.algo.wire, config.density)
        if config.bucket_mb is not None and 4 * parameters <= config.bucket_mb * MB:
            continue
        if key not in compress:
            compress[key] = node_profile.stated_or_timed(node, config, parameters, shapes)
        one = predict.iteration(config, shapes, moments, compress[key])
        if config.bucket_mb is not None and len(one.messages) == 1:
            continue
        time = one.parts(wire.alpha_s, wire.beta_s_per_byte)
        reach = None if target is None else to_target.reach(target, config, curves, groups)
        warm_s = {}
        for density in reach.group.settings["density_warmup"] if reach and reach.samples else ():
            warm = predict.iteration(dataclasses.replace(config, density=density), shapes, moments, compress[key])
            warm_s[density] = warm.seconds(wire.alpha_s, wire.beta_s_per_byte)
        found.append(Choice(one, time, reach, warm_s))
    if not found:
        sizes = ",".join(dict.fromkeys(f"{config.bucket_mb:g}" for config in configs if config.bucket_mb is not None))
        raise ConfigError(
            f"bucket_mb={sizes}: the gradient of {configs[0].model.name}, {4 * parameters / MB:.3g} MB, is one bucket "
            f"of such a size; type bucket_mb=null,{sizes} to rank it whole, or smaller sizes"
        )
    least = min(choice.seconds for choice in found)

    def order(choice: Choice) -> tuple[bool, float, bool, tuple[int, bool, bool], float]:
        near, config, aimed = choice.seconds <= TIE * least, choice.config, choice.to_target_s
        simple = (
            RELAXES.index(predict.relaxes(config.algo)),
            config.bucket_mb is not None,
            config.algo.wire != "pairs",
        )
        return aimed is None, aimed or 0.0, not near, simple if near else (0, False, False), choice.seconds

    return sorted(found, key=order)
