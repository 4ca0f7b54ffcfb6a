"""The paper's recurrent language model: an embedding, LSTM layers with dropout around them, and a linear layer."""

import torch
from torch import Tensor, nn

from repro.models import _carried

RANGE = 0.1  # authors' code: of the uniform weights of the first layer and the last


class LanguageModel(nn.Module):
    def __init__(self, words: int, width: int, layers: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList(_carried.LSTM(width, width, batch_first=True) for _ in range(layers))
        self.dropouts = nn.ModuleList(nn.Dropout(dropout) for _ in range(layers + 1))
        self.classifier = nn.Linear(width, words)
        nn.init.uniform_(self.embedding.weight, -RANGE, RANGE)
        nn.init.uniform_(self.classifier.weight, -RANGE, RANGE)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, words: Tensor) -> Tensor:
        x = self.dropouts[0](self.embedding(words))
        for layer, dropout in zip(self.layers, list(self.dropouts)[1:], strict=True):
            x = dropout(layer(x))
        return self.classifier(x.flatten(0, 1))


def build(
    classes: int, image_size: int, generator: torch.Generator, width: int = 1500, layers: int = 2, dropout: float = 0.65
) -> nn.Module:
    """Has 66,034,000 parameters for 10,000 words; maps words [batch, time] to logits [batch * time, classes]."""
    return LanguageModel(classes, width, layers, dropout)
