"""AlexNet ("one weird trick", Krizhevsky 2014) from torchvision."""

import torch
from torch import nn

from repro.models import grouped, require_size


def build(classes: int, image_size: int, generator: torch.Generator, dropout: float = 0.5) -> nn.Module:
    """Has 61,100,840 parameters for 1,000 classes; `dropout` is the probability before the two hidden layers."""
    require_size("alexnet", image_size, 63)
    from torchvision.models import alexnet  # takes seconds to import and is needed only here

    return alexnet(weights=None, num_classes=classes, dropout=dropout)


def blocks(model: nn.Module) -> list[nn.Module]:
    features, pool, classifier = model.children()
    return grouped([*features.children(), pool, nn.Flatten(), *classifier.children()])
