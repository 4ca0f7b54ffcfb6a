"""The weights that networks begin with, and where they drop: those of the authors' code."""

import pytest
import torch
from torch import nn

from repro import models
from repro.models import _carried


def load(name, classes=10, image_size=32, **options):
    return models.load(name, classes, image_size, 0, torch.Generator().manual_seed(1), **options)


def test_resnet20_begins_with_the_weights_of_the_authors_code():
    """Runs with other first weights would be other seeds of the committed ones, under the same names."""
    model = load("resnet20")
    for layer in (layer for layer in model.modules() if isinstance(layer, nn.Conv2d)):
        outputs, _, side, _ = layer.weight.shape
        spread = (2 / (outputs * side * side)) ** 0.5
        assert layer.weight.std().item() == pytest.approx(spread, rel=4 / layer.weight.numel() ** 0.5)
    classifier = model.classifier
    assert classifier.weight.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.15)
    assert not classifier.bias.any() and abs(classifier.weight.mean().item()) < 0.03


def test_the_language_model_begins_with_the_weights_of_the_authors_code_and_drops_around_its_layers():
    options = {"width": 64, "layers": 2}
    model = load("lstm", 40, 0, dropout=0.0, **options)
    for layer in (model.embedding, model.classifier):
        assert 0.099 < layer.weight.abs().max() <= 0.1 and abs(layer.weight.mean().item()) < 0.01
    assert not model.classifier.bias.any()
    words = torch.arange(40).view(2, 20)
    plain = model.train()(words)
    for dropout in model.dropouts:  # the embedding's, and each layer's
        dropout.probability = 0.9
        _carried.reset(model)
        assert not torch.allclose(model(words), plain, atol=1e-4)
        dropout.probability = 0.0
    _carried.reset(model)
    assert torch.equal(model(words), plain)
