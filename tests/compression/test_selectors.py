"""Approximate selectors keep the contract of the wire, and err as much as they say."""

import numpy as np
import pytest
import torch

from repro.compression import selectors, sparse_torch
from repro.compression.error_feedback import ErrorFeedback
from repro.compression.selectors import SELECTORS, named
from repro.compression.sparse import select, to_dense

M = 200_000


def normal(seed: int = 0) -> torch.Tensor:
    return torch.randn(M, generator=torch.Generator().manual_seed(seed))


def recall(name: str, x: torch.Tensor, k: int) -> float:
    """The part of the true top k that the selector found."""
    return torch.isin(select(x, k).index, named(name)(x, k).index).float().mean().item()


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("kind", ["normal", "zero", "few", "equal", "heavy", "short"])
@pytest.mark.parametrize("k", [1, 7, 200, 20_000])
def test_at_most_k_entries_ascending_and_no_zeros(name, kind, k):
    x = normal()
    x = {
        "normal": x, "zero": x * 0, "few": x * (torch.arange(M) % 5003 == 0), "equal": x.sign(),
        "heavy": x**9, "short": x[:5],
    }[kind]  # fmt: skip
    index, value = named(name)(x, k)
    assert index.dtype == torch.int32 and index.numel() <= k
    assert (index.diff() > 0).all() and (value != 0).all()
    assert torch.equal(value, x[index])


@pytest.mark.parametrize("name", [*SELECTORS, "in torch"])
@pytest.mark.parametrize("odd", [1, 20_000])
def test_what_is_not_a_number_is_selected_so_that_the_others_see_it(name, odd):
    """Nothing was from there on: a model that diverged stood still in silence."""
    x = normal()
    x[:: M // odd] = torch.nan
    index, value = sparse_torch.select(x, 200) if name == "in torch" else named(name)(x, 200)
    assert 0 < index.numel() <= 200 and value.isnan().sum() >= min(odd, 200) * (name != "chunked")
    assert value.isnan().any()


@pytest.mark.parametrize("name", [name for name in SELECTORS if name not in ("sampled", "gaussian")])
def test_all_entries_at_density_one(name):
    """But for the thresholds of the two, which cut off something always."""
    assert named(name)(normal()[:500], 500).index.numel() == 500


@pytest.mark.parametrize(
    "name, least", [("exact", 1.0), ("mstopk", 1.0), ("sampled", 0.5), ("gaussian", 0.6), ("chunked", 0.55)]
)
def test_the_error_is_the_one_stated(name, least):
    found = [recall(name, normal(seed), 2000) for seed in range(5)]
    assert sum(found) / len(found) >= least
    if name == "chunked":
        assert abs(sum(found) / len(found) - 0.632) < 0.03


@pytest.mark.parametrize("power, density", [(1, 0.5), (1, 0.9), (3, 0.25)])
def test_mstopk_finds_the_largest_below_the_mean_too(power, density):
    """It searched above the mean alone, and filled the places left with the first entries, not the largest."""
    x = normal() ** power
    assert recall("mstopk", x, int(density * M)) > 0.9999


def test_mstopk_does_not_go_below_the_mean_without_need():
    """Where no halving had k entries above it the places left were filled from all entries, however small."""
    x = torch.full((1000,), 1e-6, dtype=torch.float64)
    x[0], x[500:] = 1.0, (1 + 499e-6 + 1000e-11) / 500  # 1e-11 above the mean
    index, _ = named("mstopk")(x, 400)
    assert index[0] == 0 and (index[1:] >= 500).all() and index.numel() == 400


@pytest.mark.parametrize("k", [1, 3, 67, 250, 501, 999, 1000, 1001])
def test_there_are_k_chunks_whatever_k_is(k):
    """Chunks of one length were fewer than k: 500 for k = 999 of 1000."""
    assert named("chunked")(normal()[:1000], k).index.numel() == min(k, 1000)


@pytest.mark.parametrize("name", SELECTORS)
def test_error_feedback_loses_nothing(name):
    memory = ErrorFeedback(M, selector=name)
    gradients = [normal(seed) for seed in range(3)]
    sent = [to_dense(memory.accumulate_and_select(g.clone(), 500), torch.empty(M)) for g in gradients]
    assert memory.selected == int(sent[-1].count_nonzero())
    assert torch.allclose(torch.stack(sent).sum(0) + memory.residual, torch.stack(gradients).sum(0), atol=1e-5)


def test_an_unknown_selector_is_told_what_is_allowed():
    with pytest.raises(ValueError, match=r"exact\|sampled"):
        named("none")


@pytest.mark.parametrize("values", [("standard_t", 3), ("laplace",)], ids=["t", "Laplace"])
def test_gaussians_threshold_is_mended_where_values_are_not_normal(values) -> None:
    """Of heavy tails a normal threshold lets too many through, of which the first k would be taken."""
    m, k = 100_000, 100
    draw, *degrees = values
    x = torch.tensor(getattr(np.random.default_rng(1), draw)(*degrees, size=m), dtype=torch.float32)
    found = selectors.gaussian(x, k)
    assert 2 * k <= 3 * len(found.index) <= 3 * k
    assert int((x.abs() >= found.value.abs().min()).sum()) <= 4 * k / 3 + 1
