"""Data sets, one file each, found by name: `repro/data/NAME.py` with `load`, `status` and `prepare`.

    load(data: config.Data, seed, on_bad_image) -> Dataset   opens it, with the options of conf/data/NAME.yaml
    fetch(data)                                              where something must be there first: gets it or says how
    status(root) -> dict                                     state, path, size (bytes) and how to get it
    prepare(source, root) -> Path                            makes it ready, whole or not at all

Nothing here imports torch until `load`: `repro data status` answers at once.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from repro import shards
from repro.config import ConfigError, Data
from repro.rng import derive

if TYPE_CHECKING:
    from torch import Tensor


class Images(Protocol):
    """Labelled images that can be read in any order."""

    def __len__(self) -> int: ...

    def read(self, batches: Iterable[Any], seed: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Per array of sample numbers: float32 images [B, 3, H, W], normalised, channels_last; labels [B].

        `seed` chooses how each sample is augmented, whatever batch it is in; None = not at all.
        """


@dataclass(frozen=True)
class Dataset:
    """Load it once per process and share it: threads may read together, forks share its pages."""

    name: str
    description: str  # what the images really are, for results: "cifar10 (JPEG folder)"
    classes: int
    image_size: int
    seed: int
    train: Images
    test: Images

    @property
    def train_size(self) -> int:
        return len(self.train)

    @property
    def test_size(self) -> int:
        return len(self.test)

    def steps_per_epoch(self, nodes: int, batch: int) -> int:
        """Batches of every rank in an epoch. Raises ConfigError if there is not one."""
        return shards.steps_per_epoch(self.train_size, nodes, batch)

    def batches(
        self, epoch: int, rank: int, nodes: int, batch: int, start_batch: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's training batches of an epoch: the same bits from any `start_batch`, in any process."""
        mine = shards.train_batches(self.train_size, self.seed, epoch, rank, nodes, batch, start_batch)
        return self.train.read(mine, derive(self.seed, "augment", epoch))

    def test_batches(self, rank: int, nodes: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's part of the test set; over all ranks every image once."""
        return self.test.read(shards.test_batches(self.test_size, rank, nodes, batch), None)


def fetch(data: Data) -> None:
    """What `load` does before it imports torch: fetch what can be. Raises ConfigError where something is missing."""
    module = _module(data.name)
    if hasattr(module, "fetch"):
        module.fetch(data)


def load(data: Data, seed: int, on_bad_image: str = "stop") -> Dataset:
    """Open a data set, fetching it first if it can be. `on_bad_image`: skip | stop. Raises ConfigError."""
    return _module(data.name).load(data, seed, on_bad_image)


def status(root: str | Path) -> list[dict[str, Any]]:
    """One row per data set: name, state ("ready" or what is wrong), path, size in bytes, how to get it."""
    return [{"name": name, **_module(name).status(Path(root))} for name in names()]


def prepare(name: str, source: str | Path | None, root: str | Path) -> Path:
    """Make a data set ready under `root` from a folder, a file or an address; None = where it is published.

    Returns what `load` will read. Raises ConfigError, and then leaves what was there before.
    """
    return _module(name).prepare(source, Path(root))


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def _module(name: str) -> Any:
    if name not in names():
        raise ConfigError(f"There is no data set {name!r}. Choose one of {', '.join(names())}.")
    return importlib.import_module(f"{__name__}.{name}")
