"""What a run's configuration is: a dataclass that checks its own types and ranges, as its parts do.

It is used everywhere below the command line; `repro.config.compose` makes it from conf/ and the overrides.
"""

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from repro.config.parts import Algo, Cluster, Data, Model, Network, Tradeoff, Wandb
from repro.config.values import MOST, Checked, ConfigError, convert, hints_of, key
from repro.config.values import RunError as RunError  # both errors are asked for here

MOST_NODES = 4096  # beyond what any study of S-SGD has, and what threads of one process can be
MOST_EPOCHS = 1_000_000
LEAST_DENSITY = 1e-12  # one entry of a model of 10^12


@dataclass(frozen=True, kw_only=True)
class Config(Checked):
    model: Model
    data: Data
    algo: Algo
    network: Network
    cluster: Cluster
    wandb: Wandb = key(default=Wandb, result=False)
    tradeoff: Tradeoff = key(default=Tradeoff, result=False)

    nodes: int = key(low=1, high=MOST_NODES)
    seed: int = key(low=0, high=MOST)
    device: Literal["auto", "cpu", "cuda"] = key(default="auto")
    precision: Literal["float32", "bfloat16"] = key(default="float32")
    epochs: int = key(low=1, high=MOST_EPOCHS)
    steps: int | None = key(default=None, low=1, high=MOST)
    batch_per_node: int = key(low=1, high=1_000_000)
    accumulate: int = key(default=1, low=1, high=1_000_000)
    cuda_graph: Literal["on", "off"] = key(default="off", result=False)

    stages: int = key(default=1, low=1, high="nodes")
    cuts: list[int] = key(default=list, low=1, high=10_000)

    bucket_mb: float | None = key(default=None, above=0, high=1e6)
    overlap: Literal["off", "on"] = key(default="off")
    scope: Literal["global", "bucket"] = key(default="global")
    hierarchical: bool = key(default=False)
    machines: int | None = key(default=None, low=1, high="nodes")

    lr: float = key(low=0, high=1e30)  # more than float32 holds once it is squared
    lr_warmup_epochs: float = key(low=0, high=MOST_EPOCHS)
    lr_warmup_from: Literal["nodes", "zero"] = key(default="nodes")
    lr_drops: list[float] = key(above=0, high=MOST_EPOCHS)
    lr_drop_factor: float = key(above=0, high=1)
    schedule_epochs: int = key(low=1, high=MOST_EPOCHS)
    scale_schedule: bool = key(default=False)
    momentum: float = key(low=0, below=1)
    weight_decay: float = key(low=0, high=1000)
    weight_decay_of: Literal["all", "weights"] = key(default="all")
    clip_grad: float = key(default=0.0, low=0, high=1e30)
    density: float = key(low=LEAST_DENSITY, high=1)
    density_warmup: list[float] = key(low=LEAST_DENSITY, high=1)

    compute_s: float | None = key(default=None, above=0, high=1e6)
    node: Literal["paper", "paper_compute", "measured", "stated"] | None = key(default=None)
    also_on: list[str] = key(default=list, result=False)
    evaluate_every: int = key(default=1, low=1, high=MOST, result=False)
    checkpoint_epochs: int = key(default=1, low=1, high=MOST, result=False)
    checkpoint_every: int = key(default=0, low=0, high=MOST, result=False)
    compare_every: int = key(default=100, low=0, high=MOST, result=False)
    probe_steps: list[int] = key(default=list, low=1, high=MOST, result=False)
    on_nonfinite: Literal["stop", "skip"] = key(default="stop")
    on_bad_image: Literal["skip", "stop"] = key(default="skip")
    threads: int | None = key(default=None, low=1, high=1024, result=False)
    timeout_s: float = key(default=1800.0, above=0, high=1e7, result=False)
    results: str = key(default="results/runs", result=False)
    experiment: str = key(default="default", result=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.algo.sparse:
            object.__setattr__(self, "density", 1.0)
            object.__setattr__(self, "density_warmup", [])
        for name, folder in (("results", self.results), ("data.root", self.data.root)):
            if not folder:
                raise ConfigError(f"{name}={folder}: type a folder; {name}=. is this one.")
        if self.model.reads != self.data.kind:
            other = {"text": "type data=text or data=ptb", "images": "type data=cifar10, or model=lstm for text"}
            raise ConfigError(
                f"model={self.model.name} reads {self.model.reads}, and data={self.data.name} has {self.data.kind}; "
                f"{other[self.model.reads]}."
            )
        if self.node is not None and self.cluster.name != "lab":
            raise ConfigError(f"node={self.node}: only the lab measures with stated compute; type cluster=lab too.")
        if self.node == "stated" and self.compute_s is None:
            raise ConfigError("node=stated: type compute_s=SECONDS too, what a step computes on one node.")
        if self.cluster.authors != "none" and (self.node is None or self.algo.name != "gtopk"):
            raise ConfigError(
                f"cluster.authors={self.cluster.authors}: only gTop-k's messages, beside stated compute, are made like "
                "the authors'; type algo=gtopk node=paper cluster=lab too."
            )
        if self.cluster.authors != "none" and (self.algo.options.get("route") != "tree" or self.algo.wire != "pairs"):
            raise ConfigError(
                f"cluster.authors={self.cluster.authors}: the authors' code sends whole pairs along a tree; leave "
                "algo.route and algo.wire out."
            )
        if self.cluster.authors != "none" and (self.bucket_mb is not None or self.nodes < 2):
            raise ConfigError(f"cluster.authors={self.cluster.authors}: type nodes=2 or more, and no bucket_mb.")
        if sorted(set(self.lr_drops)) != self.lr_drops:
            raise ConfigError(f"lr_drops={self.lr_drops}: the epochs must ascend, for example lr_drops=[81,122].")

    @property
    def batch(self) -> int:
        """Returns how many samples of each node a step has."""
        return self.batch_per_node * self.accumulate

    @property
    def samples_per_step(self) -> int:
        """Returns those of all nodes: also nodes that share a network's stages bring their own."""
        return self.nodes * self.batch

    @property
    def micro_batches(self) -> int:
        """Returns how many micro-batches a step has on each rank: those of all the nodes that share a network."""
        return self.stages * self.accumulate

    @property
    def draws_by_seed(self) -> bool:
        """Returns whether the algorithm draws by the run's seed, or draws nothing."""
        return self.algo.options.get("seed") in (None, self.seed)

    def of_seed(self, seed: int) -> "Config":
        """Returns the same run of another seed, which the algorithm's own follows, as conf/algo says."""
        follows = "seed" in self.algo.options and self.draws_by_seed
        options = self.algo.options | ({"seed": seed} if follows else {})
        return dataclasses.replace(self, seed=seed, algo=dataclasses.replace(self.algo, options=options))

    @property
    def run_id(self) -> str:
        """Returns a readable prefix and a hash of the settings that change the result.

        Fields at their default are left out of the hash, so that a key added later does not orphan old runs. So is
        scale_schedule where a run has all epochs of its schedule, as such a run is the same with it and without.
        """
        settings = _result(self)
        if self.epochs == self.schedule_epochs:
            settings.pop("scale_schedule", None)
        return self._named(settings)

    @property
    def folder(self) -> Path:
        """Returns RESULTS/EXPERIMENT/RUN_ID; a whole schedule begun when scale_schedule was hashed keeps its own."""
        place = Path(self.results) / re.sub(r"[^\w-]+", "_", self.experiment)
        if self.epochs == self.schedule_epochs and not (place / self.run_id).exists():
            begun = place / self._named(_result(self) | {"scale_schedule": True})
            if begun.exists():
                return begun
        return place / self.run_id

    def is_named(self, name: str) -> bool:
        """Returns whether a folder of this name is for this run: its run id, or that of a whole schedule of then."""
        return name == self.run_id or (
            self.epochs == self.schedule_epochs and name == self._named(_result(self) | {"scale_schedule": True})
        )

    def _named(self, settings: dict[str, Any]) -> str:
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
        density = f"-d{self.density:g}" if self.algo.sparse else ""
        name = f"{self.model.name}-{self.data.name}-{self.algo.name}{density}-n{self.nodes}-s{self.seed}"
        return re.sub(r"[^\w.-]+", "_", name) + "-" + digest


GONE = {"together"}  # keys of earlier versions, which moved a result by rounding at most
INCIDENTAL_OPTIONS = {"workers", "prefetch"}  # options of data sets that cannot change a result


def _result(config: Any, group: str = "") -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        default = [] if f.default_factory is list else f.default
        if not f.metadata.get("result", True) or value == default:
            continue
        if (group, f.name) == ("data", "options"):
            value = {name: v for name, v in value.items() if name not in INCIDENTAL_OPTIONS}
        kept[f.name] = _result(value, f.name) if dataclasses.is_dataclass(value) else value
    return kept


def from_dict(values: dict[str, Any]) -> Config:
    """Returns the inverse of dataclasses.asdict. Raises ConfigError."""
    values = {name: value for name, value in values.items() if name not in GONE}
    try:
        for name, kind in hints_of(Config).items():
            if name in values and isinstance(kind, type) and issubclass(kind, Checked):
                values[name] = kind(**convert(name, values[name], dict))
        return Config(**values)
    except TypeError as error:  # a missing or an unknown key
        raise ConfigError(f"The configuration is not of this version of repro: {error}.") from None
