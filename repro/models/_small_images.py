"""A convolution that stays fast on a CPU where images have become small."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PIXELS = 16  # of an image at most: with more, its columns take longer to move than the weights


class Convolution3x3(nn.Conv2d):
    """Is a convolution that keeps the size of the image, as a product of matrices for small images on a CPU.

    There oneDNN brings the weights into an order of its own in every pass, which takes much longer than the product
    where an image has fewer pixels than the layer has channels. What is exported is the convolution.
    """

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, 3, padding=1)
        self.columns = nn.Unfold(3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda or torch.compiler.is_compiling() or x.shape[2] * x.shape[3] > PIXELS:
            return super().forward(x)
        columns = self.columns(x).transpose(1, 2)  # [B, pixels, inputs * 9]
        y = F.linear(columns, self.weight.flatten(1), self.bias)
        return y.transpose(1, 2).unflatten(2, x.shape[2:])
