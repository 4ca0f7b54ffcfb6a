"""Finds data sets by name: each is a file `repro/data/NAME.py` with `load`, `status` and `prepare`.

    load(data: config.Data, seed, on_bad_image) -> Dataset   opens it, with the options of conf/data/NAME.yaml
    fetch(data)                                              where something must be there first: gets it or says how
    downloads(data) -> bool                                  where `fetch` may download: whether it would now
    training_samples(data) -> int                             how many samples there are, once it is there
    test_images(data) -> int                                 of images: how many there are to test with, at most
    in_memory(data) -> int                                   where images are held in memory: how many bytes they take
    status(root) -> dict                                     state, path, size (bytes), how to get it; where ready
                                                             also kind, classes, images (or words) and fingerprint
    content(root) -> Content | None                          which images are there; None = none yet, or generated
    prepare(source, root) -> Path                            makes it ready, whole or not at all
    labels(data, trained_on: Content) -> list | None         where classes have names: those of a network's outputs;
                                                             None = the images that it was trained on are not there
    shorter_side(image_size) -> int                          where evaluation crops the middle of larger images: to how
                                                             many pixels it resizes their shorter side before

Nothing here imports torch until `load`: `repro data status` answers at once.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from repro.config.groups import near
from repro.config.parts import Data
from repro.config.schema import ConfigError
from repro.data import _shards
from repro.rng import derive

if TYPE_CHECKING:
    from torch import Tensor

EACH_HAS = ("load", "status", "content", "prepare", "training_samples")  # of the modules of this folder


class Samples(Protocol):
    """Describes labelled images, or sequences of words, that can be read in any order."""

    def __len__(self) -> int: ...

    def read(self, batches: Iterable[Any], seed: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields for each array of sample numbers: float32 images [B, 3, H, W], normalised, channels_last; labels [B].

        Of text: words int64 [B, T], and as labels the word that follows each, [B * T].
        `seed` chooses how each sample is augmented, whatever batch it is in; None = not at all.
        """


@dataclass(frozen=True)
class Content:
    """Says which images or text a data set is made of: a description for results, and a fingerprint of what is in it.

    The fingerprint is the same on every machine, wherever the data are. "" = not known, as of old runs.
    """

    description: str
    fingerprint: str

    def may_be(self, other: Content) -> bool:
        """Returns whether these may be the same data, as far as is known."""
        known = self.fingerprint and other.fingerprint
        return self.fingerprint == other.fingerprint if known else self.description == other.description

    def is_at(self, found: Content | None) -> bool:
        """Returns whether `found`, what is in some place now, is surely this."""
        return found is not None and bool(self.fingerprint) and self.fingerprint == found.fingerprint

    def __str__(self) -> str:
        return f"{self.description}, fingerprint {self.fingerprint or 'not known'}"


@dataclass(frozen=True)
class Dataset:
    """Holds a data set that is loaded once per process and shared: threads may read together, forks share its pages."""

    name: str
    description: str  # what the images really are, for results: "cifar10 (JPEG folder)"
    fingerprint: str  # of the images, see Content; "" = they are generated
    classes: int
    image_size: int  # 0 = it is text
    seed: int
    train: Samples
    test: Samples

    @property
    def train_size(self) -> int:
        return len(self.train)

    @property
    def test_size(self) -> int:
        return len(self.test)

    def steps_per_epoch(self, nodes: int, batch: int) -> int:
        """Returns the number of batches that every rank has in an epoch. Raises ConfigError if there is not one."""
        return _shards.steps_per_epoch(self.train_size, nodes, batch)

    def batches(
        self, epoch: int, rank: int, nodes: int, batch: int, start_batch: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields this rank's training batches of an epoch: the same bits from any `start_batch`, in any process."""
        mine = _shards.train_batches(self.train_size, self.seed, epoch, rank, nodes, batch, start_batch)
        return self.train.read(mine, derive(self.seed, "augment", epoch))

    def test_steps(self, nodes: int, batch: int) -> int:
        """Returns how many batches rank 0 evaluates."""
        return sum(1 for _ in _shards.test_batches(self.test_size, 0, nodes, batch))

    def test_batches(self, rank: int, nodes: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields this rank's part of the test set; over all ranks every image once."""
        return self.test.read(_shards.test_batches(self.test_size, rank, nodes, batch), None)


def fetch(data: Data) -> None:
    """Downloads what `load` needs, if that is possible, without torch. Raises ConfigError if something is missing."""
    module = _module(data.name)
    if hasattr(module, "fetch"):
        module.fetch(data)


def downloads(data: Data) -> bool:
    """Returns whether `fetch` would download something now; does not import torch."""
    module = _module(data.name)
    return bool(module.downloads(data)) if hasattr(module, "downloads") else False


def check_batches(data: Data, nodes: int, batch: int) -> None:
    """Raises ConfigError where the samples are too few for one step of all nodes; does not import torch."""
    _shards.steps_per_epoch(training_samples(data), nodes, batch)


def training_samples(data: Data) -> int:
    """Returns how many samples there are to train with, once they are there; does not import torch."""
    return int(_module(data.name).training_samples(data))


def test_images(data: Data) -> int:
    """Returns how many images there are to test with, at most; does not ask whether they are there."""
    return int(_module(data.name, "test_images").test_images(data))


def in_memory(data: Data) -> int:
    """Returns the bytes of images that each process holds; 0 where they are read as they are needed, and for text."""
    module = _module(data.name)
    return int(module.in_memory(data)) if hasattr(module, "in_memory") else 0


def load(data: Data, seed: int, on_bad_image: str = "stop") -> Dataset:
    """Loads a data set, after downloading it if that is possible. `on_bad_image`: skip | stop. Raises ConfigError."""
    return _module(data.name).load(data, seed, on_bad_image)


def status(root: str | Path) -> list[dict[str, Any]]:
    """Returns a row per data set: name, state ("ready" or what is wrong), path, size in bytes, how to get it.

    Of one that is ready also its kind (original, JPEG, ...), classes, images (training and test), and fingerprint.
    """
    unknown = {"kind": None, "classes": None, "images": None, "fingerprint": None, "size_from": None}
    return [{"name": name, **unknown, **_module(name).status(Path(root))} for name in names()]


def content(name: str, root: str | Path) -> Content | None:
    """Returns which images a data set has under `root`; None if they are not there, or generated."""
    found: Content | None = _module(name).content(Path(root))
    return found


def prepared(name: str, root: str | Path) -> tuple[Path, Content] | None:
    """Returns the place of a data set and which images it has; None where it is not there, damaged, or generated.

    Raises ConfigError where it is a file that this user may not read: it may be a good one.
    """
    from repro.data import _pack

    try:
        has = content(name, root)
    except _pack.Unreadable:
        raise
    except ConfigError:  # damaged, or not laid out as it should be
        return None
    path: Path | None = _module(name).status(Path(root))["path"]
    if has is None or path is None or (path.suffix == ".npz" and not _pack.is_undamaged(path)):
        return None
    return path, has


def prepare(name: str, source: str | Path | None, root: str | Path) -> Path:
    """Makes a data set ready under `root` from a folder, a file or an address; None = where it is published.

    Returns what `load` will read. Raises ConfigError, and then leaves what was there before.
    """
    return _module(name).prepare(source, Path(root))


def labels(data: Data, trained_on: Content) -> list[str] | None:
    """Returns the name of each class, of the images that a network was trained on; None = it has none, or not known."""
    module, found = _module(data.name), list[str]()
    if hasattr(module, "labels"):
        with suppress(ConfigError):  # the data are damaged or incomplete by now, and names are not needed
            found = list(module.labels(data, trained_on) or [])
    return found if len(found) == data.classes else None


def shorter_side(data: Data) -> int:
    """Returns to how many pixels evaluation resizes the shorter side of an image, before it crops the middle."""
    module = _module(data.name)
    return int(module.shorter_side(data.image_size)) if hasattr(module, "shorter_side") else data.image_size


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def _module(name: str, *also: str) -> Any:
    """Returns the module of a data set. Raises ConfigError where it lacks what each has, or `also`."""
    if name not in names():
        hint = near(name, names(), "{}")
        raise ConfigError(f"There is no data set {name!r}.{hint} Choose one of {', '.join(names())}.")
    module = importlib.import_module(f"{__name__}.{name}")
    if lacks := [one for one in (*EACH_HAS, *also) if not hasattr(module, one)]:
        raise ConfigError(f"repro/data/{name}.py defines no {', '.join(lacks)}; docs/adding.md says what it needs.")
    return module
