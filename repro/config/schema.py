"""What a run's configuration is: dataclasses that check their own types and ranges.

They are used everywhere below the command line; `repro.config` makes them from conf/ and the overrides.
"""

import dataclasses
import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints


class ConfigError(Exception):
    """The user asked for something that cannot be: printed in one message, exit code 2."""


class RunError(Exception):
    """Something failed while running: printed in one message, exit code 1."""


def key(
    *,
    default: Any = dataclasses.MISSING,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    result: bool = True,
) -> Any:
    """A field with its range; `result=False`: it cannot change a run's result, the run id leaves it out."""
    metadata = {"low": low, "above": above, "high": high, "result": result}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


class Checked:
    """Checks types and ranges when an instance is made. Raises ConfigError that names the key."""

    at: ClassVar[str] = ""  # how the command line addresses the fields: "algo." in algo.selector

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            value = convert(self.at + f.name, getattr(self, f.name), hints[f.name])
            check_range(self.at + f.name, value, f.metadata)
            object.__setattr__(self, f.name, value)  # frozen; 1 given for a float becomes 1.0


@dataclass(frozen=True, kw_only=True)
class Model(Checked):
    at = "model."
    name: str
    options: dict = key(default=dict)


@dataclass(frozen=True, kw_only=True)
class Data(Checked):
    at = "data."
    name: str
    root: str = key(result=False)
    classes: int = key(low=2)
    image_size: int = key(low=1)
    options: dict = key(default=dict)


@dataclass(frozen=True, kw_only=True)
class Algo(Checked):
    at = "algo."
    name: str
    sparse: bool
    file: str = key(default="", result=False)  # the module in repro/algorithms; "" = name
    selector: Literal["exact", "sampled", "gaussian", "chunked", "mstopk"] = key(default="exact")
    options: dict = key(default=dict)

    @property
    def module(self) -> str:
        return self.file or self.name


@dataclass(frozen=True, kw_only=True)
class Network(Checked):
    """A message of n bytes takes alpha_s + n * beta_s_per_byte; bits_per_s is the line rate (0 = unknown)."""

    at = "network."
    name: str = key(result=False)
    alpha_s: float = key(low=0)
    beta_s_per_byte: float = key(low=0)
    bits_per_s: float = key(default=0.0, low=0)
    options: dict = key(default=dict)


@dataclass(frozen=True, kw_only=True)
class Cluster(Checked):
    at = "cluster."
    name: str
    options: dict = key(default=dict)


@dataclass(frozen=True, kw_only=True)
class Wandb(Checked):
    at = "wandb."
    mode: Literal["offline", "online", "disabled"] = key(default="offline", result=False)
    project: str = key(default="repro", result=False)


@dataclass(frozen=True, kw_only=True)
class Tradeoff(Checked):
    """A grid of networks on which iterations are predicted; where it is not empty, nothing is trained."""

    at = "tradeoff."
    node: Any = key(default="paper", result=False)  # a text, or a number: seconds
    bits_per_s: list[float] = key(default=list, above=0, result=False)
    alpha_s: list[float] = key(default=list, low=0, result=False)


@dataclass(frozen=True, kw_only=True)
class Config(Checked):
    model: Model
    data: Data
    algo: Algo
    network: Network
    cluster: Cluster
    wandb: Wandb = key(default=Wandb, result=False)
    tradeoff: Tradeoff = key(default=Tradeoff, result=False)

    nodes: int = key(low=1)
    seed: int = key(low=0, high=2**31 - 1)
    device: Literal["auto", "cpu", "cuda"] = key(default="auto")
    precision: Literal["float32", "bfloat16"] = key(default="float32")
    epochs: int = key(low=1)
    steps: int | None = key(default=None, low=1)
    batch_per_node: int = key(low=1)
    accumulate: int = key(default=1, low=1)
    together: Literal["auto", "on", "off"] = key(default="auto")

    bucket_mb: float | None = key(default=None, above=0)
    overlap: Literal["off", "on"] = key(default="off")
    scope: Literal["global", "bucket"] = key(default="global")
    hierarchical: bool = key(default=False)
    machines: int | None = key(default=None, low=1)

    lr: float = key(low=0)
    lr_warmup_epochs: float = key(low=0)
    lr_drops: list[float] = key(above=0)
    lr_drop_factor: float = key(above=0, high=1)
    schedule_epochs: int = key(low=1)
    scale_schedule: bool = key(default=False)
    momentum: float = key(low=0, high=1)
    weight_decay: float = key(low=0)
    density: float = key(above=0, high=1)
    density_warmup: list[float] = key(above=0, high=1)

    compute_s: float | None = key(default=None, above=0)
    also_on: list[str] = key(default=list, result=False)
    evaluate_every: int = key(default=1, low=1, result=False)
    checkpoint_every: int = key(default=0, low=0, result=False)
    compare_every: int = key(default=100, low=0, result=False)
    probe_steps: list[int] = key(default=list, low=1, result=False)
    on_nonfinite: Literal["stop", "skip"] = key(default="stop")
    on_bad_image: Literal["skip", "stop"] = key(default="skip")
    threads: int | None = key(default=None, low=1, result=False)
    timeout_s: float = key(default=1800.0, above=0, result=False)
    results: str = key(default="results/runs", result=False)
    experiment: str = key(default="default", result=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.algo.sparse:
            object.__setattr__(self, "density", 1.0)
            object.__setattr__(self, "density_warmup", [])
        if sorted(self.lr_drops) != self.lr_drops:
            raise ConfigError(f"lr_drops={self.lr_drops}: the epochs must ascend, for example lr_drops=[81,122].")

    @property
    def run_id(self) -> str:
        """A readable prefix and a hash of the settings that change the result.

        Fields at their default are left out of the hash, so that a key added later does not orphan old runs.
        """
        digest = hashlib.sha256(json.dumps(_result(self), sort_keys=True).encode()).hexdigest()[:8]
        density = f"-d{self.density:g}" if self.algo.sparse else ""
        name = f"{self.model.name}-{self.data.name}-{self.algo.name}{density}-n{self.nodes}-s{self.seed}"
        return re.sub(r"[^\w.-]+", "_", name) + "-" + digest

    @property
    def folder(self) -> Path:
        return Path(self.results) / re.sub(r"[^\w-]+", "_", self.experiment) / self.run_id


INCIDENTAL_OPTIONS = {"workers", "prefetch"}  # options of any group that cannot change a result


def _result(config: Any) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        default = [] if f.default_factory is list else f.default
        if not f.metadata.get("result", True) or value == default:
            continue
        if f.name == "options":
            value = {name: v for name, v in value.items() if name not in INCIDENTAL_OPTIONS}
        kept[f.name] = _result(value) if dataclasses.is_dataclass(value) else value
    return kept


def from_dict(values: dict[str, Any]) -> Config:
    """The inverse of dataclasses.asdict. Raises ConfigError."""
    values = dict(values)
    try:
        for name, kind in get_type_hints(Config).items():
            if name in values and isinstance(kind, type) and issubclass(kind, Checked):
                values[name] = kind(**convert(name, values[name], dict))
        return Config(**values)
    except TypeError as error:  # a missing or an unknown key
        raise ConfigError(f"The configuration is not of this version of repro: {error}.") from None


def convert(name: str, value: Any, kind: Any) -> Any:
    """`value` as `kind`, or a ConfigError that says what was expected. Nothing is guessed: "3" is no int."""
    if get_origin(kind) in (UnionType, Union):
        return None if value is None else convert(name, value, next(k for k in get_args(kind) if k is not type(None)))
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ConfigError(f"{name}={value}: choose one of {', '.join(get_args(kind))}.")
        return value
    if kind is list or get_origin(kind) is list:
        if not isinstance(value, list):
            raise ConfigError(f"{name}={value}: expected a list, for example {name}=[{value}] or {name}=[].")
        return [convert(name, item, *get_args(kind)) for item in value] if get_args(kind) else value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is Any or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name}={value}: must be a finite number.")
        return value
    expected = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "a text",
        dict: f"its keys, as in {name}.KEY=VALUE",
    }
    raise ConfigError(f"{name}={value}: expected {expected.get(kind, kind.__name__)}.")


def check_range(name: str, value: Any, allowed: Any) -> None:
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, (int, float)) or isinstance(item, bool):
            continue
        low, above, high = allowed.get("low"), allowed.get("above"), allowed.get("high")
        if (
            (low is not None and item < low)
            or (above is not None and item <= above)
            or (high is not None and item > high)
        ):
            bounds = [
                f"at least {low}" if low is not None else "",
                f"above {above}" if above is not None else "",
            ]
            bounds.append(f"at most {high}" if high is not None else "")
            raise ConfigError(f"{name}={item:g}: must be {' and '.join(b for b in bounds if b)}.")
