"""Holds a text in memory as sequences of words, each of which is to be continued by one word."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from repro.data import Dataset, _shards


@dataclass(frozen=True)
class Sequences:
    """Holds a text as a data set's Samples (see repro.data): sample i is the i-th stretch of `length` words.

    Its labels are the words that follow each of its words. The few words at the end that fill no sample are left out.
    """

    words: Tensor  # int32 [N]
    length: int

    def __len__(self) -> int:
        return max(0, len(self.words) - 1) // self.length

    def read(self, batches: Iterable[np.ndarray], seed: int | None) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in batches:
            place = torch.from_numpy(batch)[:, None] * self.length + torch.arange(self.length)
            yield self.words[place].long(), self.words[place + 1].long().flatten()


class Text(Dataset):
    """Reads a text in its order: each row of a batch goes on where the same row of the batch before ended."""

    def batches(
        self, epoch: int, rank: int, nodes: int, batch: int, start_batch: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields this rank's part of the text, which is the same in each epoch, from any `start_batch`."""
        return self.train.read(_shards.train_rows(self.train_size, rank, nodes, batch, start_batch), None)

    def test_steps(self, nodes: int, batch: int) -> int:
        return sum(1 for _ in _shards.test_rows(self.test_size, 0, nodes))

    def test_batches(self, rank: int, nodes: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields this rank's rows of the test text; over all ranks they are the same for any number of them."""
        return self.test.read(_shards.test_rows(self.test_size, rank, nodes), None)


def of(numbers: np.ndarray, words: int, length: int) -> Sequences:
    """Returns a text whose words from number `words` on are unknown ones."""
    return Sequences(torch.from_numpy(np.where(numbers < words, numbers, 0)), length)
