"""The plain loops beside which `repro bench step` measures a run."""

import json
from pathlib import Path

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


def test_a_row_says_how_the_messages_travelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs over gloo and in memory gave rows that nothing told apart."""
    keys = ["data=synthetic", "data.train_images=32", "data.test_images=8", "nodes=2", "batch_per_node=8"]
    configs = [one for way in ("gloo", "memory") for one in compose([*keys, f"cluster.messages={way}"])]
    bench_step.measure_steps(configs, 1, 1, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "step.jsonl").read_text().splitlines()]
    assert [row["messages"] for row in rows] == ["gloo", "memory"]
    assert "memory" in capsys.readouterr().out
