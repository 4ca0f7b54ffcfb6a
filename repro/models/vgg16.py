"""VGG-16 for small images: 13 convolutions with BatchNorm and one linear layer, as in the authors' code."""

import torch
from torch import nn

from repro.models import grouped, require_size
from repro.models._small_images import Convolution3x3

STAGES = [[64, 64], [128, 128], [256, 256, 256], [512, 512, 512], [512, 512, 512]]


def build(classes: int, image_size: int, generator: torch.Generator) -> nn.Module:
    """Has 14,728,266 parameters for 10 classes; five poolings reduce 32x32 to one pixel, larger images are averaged."""
    require_size("vgg16", image_size, 32)
    layers: list[nn.Module] = []
    inputs = 3
    for stage in STAGES:
        for outputs in stage:
            layers += [Convolution3x3(inputs, outputs), nn.BatchNorm2d(outputs)]
            layers.append(nn.ReLU(inplace=True))
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def blocks(model: nn.Module) -> list[nn.Module]:
    return grouped(model.children())
