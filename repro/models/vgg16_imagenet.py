"""VGG-16 for ImageNet (Simonyan and Zisserman, 2015) from torchvision: most of its parameters are in linear layers."""

import torch
from torch import nn

from repro.models import grouped, require_size


def build(classes: int, image_size: int, generator: torch.Generator, dropout: float = 0.5) -> nn.Module:
    """Has 138,357,544 parameters for 1,000 classes; `dropout` is the probability after the two hidden layers."""
    require_size("vgg16_imagenet", image_size, 32)
    from torchvision.models import vgg16  # takes seconds to import and is needed only here

    return vgg16(weights=None, num_classes=classes, dropout=dropout)


def blocks(model: nn.Module) -> list[nn.Module]:
    features, pool, classifier = model.children()
    return grouped([*features.children(), pool, nn.Flatten(), *classifier.children()])
