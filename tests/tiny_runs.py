"""The smallest runs that train, and what they end with."""

from pathlib import Path

import torch

from repro.config.compose import compose
from repro.config.schema import Config
from repro.runs import checkpoint

# One thread a rank: two of one that runs beside other tests wait for each other.
TINY = ["data=digits", "batch_per_node=4", "density=0.01", "wandb.mode=disabled", "lr_warmup_epochs=0", "threads=1"]
QUICK = [
    "data=synthetic",
    "data.image_size=8",
    "data.train_images=64",
    "data.test_images=16",
    "data.pad=1",
    "data.flip=true",
]


def config(folder: Path, *overrides: str) -> Config:
    return compose([*TINY, f"results={folder}", *overrides])[0]


def bits(folder: Path) -> dict[str, object]:
    """Everything that the newest checkpoint holds, by file."""
    _, place = latest(folder)
    return {path.name: checkpoint.load(place, path.name, torch.device("cpu")) for path in place.glob("*.pt")}


def latest(folder: Path) -> tuple[int, Path]:
    """The newest whole checkpoint of a run folder: its step, and where it is."""
    found = checkpoint.newest_whole(folder / "checkpoints")
    return found.step, found.folder


def equal(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b
