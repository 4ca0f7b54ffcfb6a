"""The bound of a gradient's norm, alone and in a run."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_runs import QUICK, config

from repro.clip import clip
from repro.runs import run_folder
from repro.train import loop


@given(scale=st.floats(1e-12, 1e12), most=st.floats(1e-3, 1e3))
def test_a_clipped_gradient_keeps_its_direction_and_is_no_longer_than_allowed(scale, most):
    gradient = torch.tensor([3.0, -4.0, 0.0]) * scale
    clipped = gradient.clone()
    clip(clipped, most)
    assert clipped.norm().item() == pytest.approx(min(most, 5 * scale), rel=1e-5)
    assert torch.allclose(clipped / clipped.norm(), gradient / gradient.norm(), atol=1e-6)


def test_the_norm_of_half_precision_may_be_more_than_it_holds():
    """It was inf, and the gradient was all zeros, which no check of what is finite finds."""
    gradient = torch.full((100,), 30_000.0, dtype=torch.float16)
    clip(gradient, 1.0)
    assert gradient.dtype == torch.float16 and gradient.float().norm().item() == pytest.approx(1, rel=1e-3)


def test_the_norm_may_be_more_than_float32_holds():
    gradient = torch.tensor([3e19, -4e19])
    clip(gradient, 1.0)
    assert torch.allclose(gradient, torch.tensor([0.6, -0.8]))


def test_a_gradient_of_zeros_stays_and_one_that_is_not_finite_is_still_seen():
    zeros, odd = torch.zeros(3), torch.tensor([1.0, float("inf")])
    clip(zeros, 1.0)
    clip(odd, 1.0)
    assert not zeros.any() and not torch.isfinite(odd).all()


def test_a_run_with_a_bound_that_nothing_reaches_is_the_run_without_one(tmp_path):
    """And a bound that is reached makes another run, with a run id of its own."""
    losses = {}
    for bound in (0, 1e6, 1e-3):
        run = config(tmp_path, *QUICK, "algo=dense", "nodes=2", "steps=3", f"clip_grad={bound}")
        loop.run(run)
        losses[bound] = [line["loss"] for line in run_folder.read_metrics(run.folder) if line["kind"] == "step"]
    assert losses[0] == losses[1e6] != losses[1e-3]
    assert len(list(tmp_path.glob("default/*"))) == 3
