"""Small runs in buckets, on levels or by DDP, and the weights that they leave."""

import torch
from tiny_runs import latest

from repro.config.compose import compose
from repro.config.schema import Config
from repro.runs import checkpoint
from repro.timing.before_run import before_a_run
from repro.train import loop

IMAGES = ["data=synthetic", "data.image_size=8", "data.train_images=64", "data.test_images=16"]
TINY = [*IMAGES, "batch_per_node=4", "density=0.01", "wandb.mode=disabled", "lr_warmup_epochs=0", "nodes=2"]
CPU = torch.device("cpu")


def config(folder, *overrides: str) -> Config:
    return compose([*TINY, f"results={folder}", *overrides])[0]


def weights(folder) -> torch.Tensor:
    _, target = latest(folder)
    return checkpoint.load(target, "shared.pt", CPU)["parameters"]


def trained(run: Config) -> torch.Tensor:
    assert loop.run(run, before_a_run)["state"] == "done"
    return weights(run.folder)
