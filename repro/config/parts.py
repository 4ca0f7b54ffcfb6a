"""The parts of a run's configuration: the network that is trained, its data, the algorithm, the links, and others."""

from dataclasses import dataclass
from typing import Any, Literal

from repro import metric
from repro.config.counts import node_seconds
from repro.config.values import Checked, ConfigError, key
from repro.metric import Metric

# Of time in the lab: those that were measured to agree, docs/time.md. From 64 on they are for networks above 1 Gbps.
DILATIONS = (1, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, kw_only=True)
class Model(Checked):
    at = "model."
    name: str
    reads: Literal["images", "text"] = key(default="images")
    options: dict = key(default=dict)


@dataclass(frozen=True, kw_only=True)
class Data(Checked):
    at = "data."
    name: str
    root: str = key(result=False)
    classes: int = key(low=2, high=100_000)  # of text: words that a network can tell
    image_size: int = key(default=0, low=1, high=4096)  # 0 = it is text
    sequence: int = key(default=0, low=1, high=100_000)  # words of one sample of text; 0 = it is images
    fingerprint: str = key(default="")  # of the data, where another run of these settings had others
    options: dict = key(default=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.image_size > 0) == (self.sequence > 0):
            raise ConfigError(f"data={self.name}: its YAML must have image_size, of images, or sequence, of text.")

    @property
    def metric(self) -> Metric:
        return metric.of(vars(self))

    @property
    def kind(self) -> Literal["images", "text"]:
        return "text" if self.sequence else "images"


@dataclass(frozen=True, kw_only=True)
class Algo(Checked):
    at = "algo."
    name: str
    sparse: bool
    file: str = key(default="", result=False)  # the module in repro/algorithms; "" = name
    selector: Literal["exact", "sampled", "gaussian", "chunked", "mstopk"] = key(default="exact")
    wire: Literal["pairs", "gaps", "gaps-bf16", "packed"] = key(default="pairs")
    correction: float = key(default=0.0, low=0, below=1)  # momentum of each rank's velocity; 0 = it has none
    mask: Literal["none", "selected", "delivered"] = key(default="none")
    clip: float = key(default=0.0, low=0, high=1e30)
    boost: float = key(default=1.0, low=1, high=1000)  # the most by which an entry that waits counts more
    gain: float = key(default=1.0, low=1, high=1000)  # in place of momentum, which amounts to 1 / (1 - momentum)
    options: dict = key(default=dict)

    @property
    def module(self) -> str:
        return self.file or self.name

    @property
    def corrected(self) -> bool:
        """Returns whether more is done than the algorithm's own step: by `correction`, `clip`, `boost` or `gain`."""
        return bool(self.correction or self.clip or self.boost != 1 or self.gain != 1)

    @property
    def conflict(self) -> str:
        """Returns what does not go together in these settings, and what to type; "" where all does."""
        if self.gain != 1 and self.momentum:
            return (
                f"algo.gain={self.gain:g} takes the place of momentum, and there is some before the selection; "
                "type algo.gain=1, or algo.correction=0"
            )
        if self.mask == "none" or self.correction:
            return ""
        return f"algo.mask={self.mask} sets entries of velocities to zero, and there are none; type algo.correction=0.9"

    @property
    def momentum(self) -> float:
        """Returns the momentum of each rank's velocity, from which it selects: `correction`, or DGC's own option."""
        return float(self.correction or self.options.get("momentum", 0.0))

    @property
    def in_place_of_momentum(self) -> str:
        """Returns the setting that takes the place of the optimizer's momentum, as typed; "" where none does."""
        if self.correction:
            return f"algo.correction={self.correction:g}"
        return f"algo.gain={self.gain:g}" if self.gain != 1 else ""

    @property
    def amplification(self) -> float:
        """Returns how many times a constant gradient each update becomes in the end, by momentum or by `gain`.

        A mask takes from that where entries are sent often, and a boost adds to it, which is not counted.
        """
        return self.gain / (1 - self.momentum)


@dataclass(frozen=True, kw_only=True)
class Network(Checked):
    """A message of n bytes takes alpha_s + n * beta_s_per_byte; bits_per_s is the line rate (0 = unknown)."""

    at = "network."
    name: str = key(result=False)
    alpha_s: float = key(low=0, high=3600)
    beta_s_per_byte: float = key(low=0, high=1)
    bits_per_s: float = key(default=0.0, low=0, high=1e15)
    options: dict = key(default=dict)


@dataclass(frozen=True, kw_only=True)
class Cluster(Checked):
    """In the lab, `dilation` is D: all lasts D times as long, and results are divided by it. See docs/time.md.

    `alpha` says whose latency a message has: that of this machine's TCP, or network.alpha_s, as always where D > 1.
    `authors` says what of the authors' code gTop-k's messages have: see timing.authors_messages.
    `messages` of ranks that are threads: over gloo's sockets, or handed over in memory, where sums have the same bits.
    """

    at = "cluster."
    name: str
    dilation: Any = key(default=1)  # a number of DILATIONS, or auto
    alpha: Literal["machine", "network"] = key(default="machine")
    authors: Literal["none", "pairs", "barriers", "merges", "all"] = key(default="none")
    messages: Literal["gloo", "memory"] = key(default="gloo", result=False)
    options: dict = key(default=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dilation not in (*DILATIONS, "auto"):
            raise ConfigError(
                f"cluster.dilation={self.dilation}: choose one of {', '.join(map(str, DILATIONS))}, auto."
            )

    @property
    def forks(self) -> bool:
        """Returns whether this process starts one process for each rank; else ranks are its threads."""
        return self.name in ("processes", "lab")

    @property
    def held(self) -> bool:
        """Returns whether receivers hold each message until the network's alpha has passed."""
        return self.dilation != 1 or self.alpha == "network"


@dataclass(frozen=True, kw_only=True)
class Wandb(Checked):
    at = "wandb."
    mode: Literal["offline", "online", "disabled"] = key(default="offline", result=False)
    project: str = key(default="repro", result=False)
    entity: str | None = key(default=None, result=False)


@dataclass(frozen=True, kw_only=True)
class Tradeoff(Checked):
    """A grid of networks on which iterations are predicted; where it is not empty, nothing is trained."""

    at = "tradeoff."
    node: Any = key(default="paper", result=False)  # a text, or a number: seconds
    bits_per_s: list[float] = key(default=list, above=0, high=1e15, result=False)
    alpha_s: list[float] = key(default=list, low=0, high=3600, result=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        node_seconds(str(self.node))
