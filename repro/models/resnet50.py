"""ResNet-50 (He et al., 2016) from torchvision, with the stride in a block's 3x3 convolution."""

import torch
from torch import nn

from repro.models import require_size


def build(classes: int, image_size: int, generator: torch.Generator) -> nn.Module:
    """Has 25,557,032 parameters for 1,000 classes; `generator` is unused, as there is no dropout."""
    require_size("resnet50", image_size, 32)
    from torchvision.models import resnet50  # takes seconds to import and is needed only here

    return resnet50(weights=None, num_classes=classes)


def blocks(model: nn.Module) -> list[nn.Module]:
    """Returns the stem, 16 bottlenecks, and the pooling with the classifier."""
    *stem, one, two, three, four, pool, classifier = model.children()
    bottlenecks = [block for layer in (one, two, three, four) for block in layer.children()]
    return [nn.Sequential(*stem), *bottlenecks, nn.Sequential(pool, nn.Flatten(), classifier)]
