"""The plain loops beside which `repro bench step` measures a run."""

import pytest
import torch

from repro import models
from repro.config.compose import compose
from repro.timing import bench_step
from repro.train.loop import load_data


def test_a_plain_loop_clips_as_the_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """It did not, and the clipping of the run was counted as what its ranks cost."""
    keys = ["nodes=1", "batch_per_node=8", "clip_grad=1e-3", "lr=10", "momentum=0", "weight_decay=0"]
    (config,) = compose(["data=synthetic", "data.train_images=32", *keys])
    made = models.load("resnet20", 10, 32, config.seed, torch.Generator())
    before = torch.nn.utils.parameters_to_vector(made.parameters()).detach().clone()
    monkeypatch.setattr(models, "load", lambda *_, **__: made)
    bench_step.plain(config, load_data(config), 1, 1)
    moved = torch.nn.utils.parameters_to_vector(made.parameters()) - before
    assert moved.norm().item() == pytest.approx(10 * 1e-3, rel=1e-3)
