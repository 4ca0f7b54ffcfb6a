"""AlexNet ("one weird trick", Krizhevsky 2014) from torchvision, with the rank's own dropout."""

import torch
from torch import nn

from repro.dropout import Dropout
from repro.models import require_size


def build(classes: int, image_size: int, generator: torch.Generator, dropout: float = 0.5) -> nn.Module:
    """61,100,840 parameters for 1,000 classes. `dropout`: probability before the two hidden layers."""
    require_size("alexnet", image_size, 63)
    from torchvision.models import alexnet  # seconds to import, and only here needed

    model = alexnet(weights=None, num_classes=classes)
    for position, module in enumerate(model.classifier):
        if isinstance(module, nn.Dropout):
            model.classifier[position] = Dropout(dropout, generator)
    return model
