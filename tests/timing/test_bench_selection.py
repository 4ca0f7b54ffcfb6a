"""What `repro bench gradient` records."""

from pathlib import Path

import pytest
import torch

from repro.config.compose import compose
from repro.timing import bench_selection


def test_a_recorded_gradient_is_clipped_as_a_runs_is(tmp_path: Path) -> None:
    """It was not, and the residual grew by gradients that no run with this clip_grad has."""
    (config,) = compose(["data=synthetic", "data.train_images=32", "nodes=1", "batch_per_node=8", "clip_grad=1e-3"])
    bench_selection.record(config, 2, tmp_path / "gradient.pt")
    saved = torch.load(tmp_path / "gradient.pt", weights_only=True)
    assert saved["gradient"].norm().item() == pytest.approx(1e-3, rel=1e-4)
    assert 0 < saved["residual"].norm().item() < 1e-3


def test_ratios_are_over_the_same_run_and_above_1_where_a_method_is_faster_than_topk() -> None:
    seconds = {"copy": [1.0], "add": [2.0], "torch.topk": [4.0, 8.0, 8.0], "exact": [2.0, 1.0, 2.0]}
    rows = {row["method"]: row for row in bench_selection.compared(seconds, {})}
    assert rows["exact"]["topk_over"] == 4.0 and rows["torch.topk"]["topk_over"] == 1.0
    assert (rows["exact"]["over_copy"], rows["exact"]["over_add"]) == (2.0, 1.0)
    assert (rows["exact"]["seconds"], rows["exact"]["least_s"], rows["exact"]["repeats"]) == (2.0, 1.0, 3)
