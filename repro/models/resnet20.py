"""ResNet-20 for small images (He et al., 2016, section 4.2) with parameter-free option-A shortcuts."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Adds a shortcut to two 3x3 convolutions; if the shape changes, the shortcut skips pixels and pads channels."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.padding = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        if self.padding:
            # Takes one pixel of four, as slicing would; but the gradient of a slice has the channels first, so that
            # every layer before this one would mix two layouts, which takes longer.
            x = F.pad(F.avg_pool2d(x, 1, self.stride), (0, 0, 0, 0, 0, self.padding))
        return F.relu(y + x, inplace=True)


class ResNet20(nn.Module):
    def __init__(self, classes: int):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
        self.blocks = nn.Sequential(*(Block(i, o, o // i) for i, o in zip(widths, widths[1:], strict=False)))
        self.classifier = nn.Linear(64, classes)
        for module in self.modules():  # as in the authors' code
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
        nn.init.kaiming_normal_(self.classifier.weight)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        return self.classifier(self.blocks(x).mean((2, 3)))


class Pool(nn.Module):
    """Averages each channel over the whole image."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def build(classes: int, image_size: int, generator: torch.Generator) -> nn.Module:
    """Has 269,722 parameters for 10 classes; takes any image size, as the last pooling averages the whole image."""
    return ResNet20(classes)


def blocks(model: nn.Module) -> list[nn.Module]:
    """Returns the stem, nine blocks, and the pooling with the classifier."""
    convolution, norm, middle, classifier = model.children()
    return [
        nn.Sequential(convolution, norm, nn.ReLU(inplace=True)), *middle.children(), nn.Sequential(Pool(), classifier)
    ]  # fmt: skip
