"""The smallest runs that train."""

from pathlib import Path

from repro.config import Config, compose

TINY = ["data=digits", "batch_per_node=4", "density=0.01", "wandb.mode=disabled", "lr_warmup_epochs=0"]
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
