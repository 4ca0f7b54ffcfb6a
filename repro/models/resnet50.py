"""ResNet-50 (He et al., 2016) from torchvision: stride in the 3x3 convolution of a block."""

import torch
from torch import nn

from repro.models import require_size


def build(classes: int, image_size: int, generator: torch.Generator) -> nn.Module:
    """25,557,032 parameters for 1,000 classes. `generator` is unused: there is no dropout."""
    require_size("resnet50", image_size, 32)
    from torchvision.models import resnet50  # seconds to import, and only here needed

    return resnet50(weights=None, num_classes=classes)
