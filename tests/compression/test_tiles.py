"""The cosine transform of tiles: orthonormal, inverted by its transpose, and each entry of a layer in one tile."""

import math

import pytest
import torch

from repro.compression import tiles

LAYERS = {
    "convolutions": [(16, 3, 3, 3), (16,), (32, 16, 3, 3), (10, 64), (10,)],
    "primes": [(7, 11), (13,), (1,)],
    "long": [(128, 256), (130, 64)],
}


@pytest.mark.parametrize("n", [1, 2, 7, 64, 100])
def test_the_transform_is_orthonormal_and_its_rows_are_cosines(n):
    matrix = tiles.cosines(n)
    assert torch.allclose(matrix @ matrix.T, torch.eye(n), atol=1e-5)
    assert torch.allclose(matrix @ torch.ones(n), math.sqrt(n) * torch.eye(n)[0], atol=1e-4)
    wave = torch.cos(math.pi * (n // 2) * (2 * torch.arange(n) + 1) / (2 * n))
    assert int((matrix @ wave).abs().argmax()) == n // 2


@pytest.mark.parametrize("shapes", [*LAYERS.values(), None], ids=[*LAYERS, "no layers"])
@pytest.mark.parametrize("side", [1, 8, 64])
def test_what_is_transformed_comes_back_and_keeps_its_norm(shapes, side):
    m = sum(map(math.prod, shapes)) if shapes else 1000
    divided = tiles.divide(m, shapes, side, "cpu")
    entries = torch.cat([part.entry.flatten() for part in divided])
    assert torch.equal(entries.sort().values, torch.arange(m))
    assert all(max(part.entry.shape[1:]) <= side for part in divided)
    x, back, square = torch.randn(m, generator=torch.Generator().manual_seed(0)), torch.full((m,), torch.nan), 0.0
    for part in divided:
        coefficients = part.transform(x)
        part.restore(coefficients, back)
        square += coefficients.square().sum().item()
    assert torch.allclose(back, x, atol=1e-5)
    assert square == pytest.approx(x.square().sum().item(), rel=1e-5)
    assert tiles.tile_sizes(m, shapes, side) == [(part.entry.shape[0], part.size) for part in divided]


def test_tiles_are_blocks_of_the_layers_matrix():
    (part,) = tiles.divide(48, [(6, 4, 2)], 4, "cpu")
    assert part.entry.shape == (4, 3, 4)
    assert torch.equal(part.entry[1], torch.arange(48).view(6, 8)[:3, 4:])
    assert torch.equal(part.entry[2], torch.arange(48).view(6, 8)[3:, :4])


def test_a_smooth_tile_is_a_few_coefficients():
    ramp = torch.linspace(0, 1, 64).outer(torch.linspace(1, 2, 64)).flatten()
    (part,) = tiles.divide(4096, [(64, 64)], 64, "cpu")
    coefficients = part.transform(ramp)[0]
    kept = coefficients.abs().topk(32).values
    assert kept.square().sum() > 0.9999 * ramp.square().sum()


def test_shapes_that_are_not_the_models_are_refused():
    with pytest.raises(ValueError, match="shapes hold 6 entries, the model has 7"):
        tiles.divide(7, [(2, 3)], 64, "cpu")


def test_a_layer_without_entries_has_no_tiles() -> None:
    """It ended in a StopIteration."""
    (tile,) = tiles.divide(12, [(0, 3), (4, 3)], 8, "cpu")
    assert tile.entry.numel() == 12
